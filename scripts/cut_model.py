"""python3 cut_model.py SOURCE.gguf TARGET.gguf LAYERS: the first layers of a model whose output matrix is its embedding.

The layers stay as they are; the embedding becomes Q4_0. What comes out is small, has the shapes of the whole model and
talks no sense: scripts/gpu_check compares backends on it. Packages as for requantize.py.
"""
import sys

import gguf
import numpy
import requantize

EMBEDDING_TYPE = gguf.GGMLQuantizationType.Q4_0


def cut(source: str, target: str, layers: int) -> None:
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    requantize.copy_metadata(reader, writer, {f"{architecture}.block_count": layers})
    for tensor in reader.tensors:
        part, _, rest = tensor.name.partition(".")
        if part == "blk" and int(rest.partition(".")[0]) >= layers:
            continue
        data, kind = numpy.array(tensor.data), tensor.tensor_type
        if tensor.name == requantize.EMBEDDING:
            data, kind = gguf.quantize(gguf.dequantize(data, kind), EMBEDDING_TYPE), EMBEDDING_TYPE
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    cut(sys.argv[1], sys.argv[2], int(sys.argv[3]))
