"""python3 requantize.py SOURCE.gguf TARGET.gguf q4_0|q8_0: the same model with its matrices quantised anew.

Each matrix is dequantised and quantised to the wanted type, but for the embedding of q4_0, which becomes Q8_0.
Vectors and metadata stay, except for the file type. The same source gives the same bytes on every machine: what numpy
does here is rounded exactly. Needs the packages gguf and numpy; fetch_models.py brings them.
"""
import sys

import gguf
import numpy

TYPES = {"q4_0": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
         "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0)}
EMBEDDING = "token_embd.weight"


def copy_metadata(reader, writer, changes: dict) -> None:
    """All of it, with these values in place of the file's."""
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":  # the writer's own
            continue
        kind, value = field.types[0], changes.get(name, field.contents())
        of_what = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, kind, sub_type=of_what)


def requantize(source: str, target: str, name: str) -> None:
    matrix_type, file_type = TYPES[name]
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    copy_metadata(reader, writer, {"general.file_type": int(file_type)})
    for tensor in reader.tensors:
        if len(tensor.shape) == 1:
            writer.add_tensor(tensor.name, numpy.array(tensor.data), raw_dtype=tensor.tensor_type)
            continue
        kind = gguf.GGMLQuantizationType.Q8_0 if tensor.name == EMBEDDING else matrix_type
        floats = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, gguf.quantize(floats, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    requantize(*sys.argv[1:4])
