"""scripts/cuda_roofline.py: its arithmetic on cases done by hand, and that docs/performance.md keeps its table."""
import contextlib
import io
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import cuda_roofline as roofline  # noqa: E402

SMALL = roofline.Model(layers=1, heads=2, kv_heads=1, head_dim=4, hidden=8, ff=16, vocab=32)


class CudaRoofline(unittest.TestCase):
    def test_weights(self):
        # q and o 8 x 8, k and v 4 x 8, three of 16 x 8, the output matrix 32 x 8
        self.assertEqual(SMALL.matrix_weights(), 2 * 64 + 2 * 32 + 3 * 128 + 256)

    def test_a_published_parameter_count(self):
        # Llama 3 8B has 8,030,261,248 parameters: these, the input embedding and 65 norms.
        self.assertEqual(roofline.Model().matrix_weights() + 128256 * 4096 + 65 * 4096, 8_030_261_248)

    def test_kv_bytes(self):
        self.assertEqual(SMALL.kv_bytes_per_token("bf16"), 16)  # K and V of 4 x 2 bytes
        self.assertEqual(SMALL.kv_bytes_per_token("int8"), 16)  # of 4 bytes and a float
        self.assertEqual(roofline.Model().kv_bytes_per_token("bf16"), 131072)
        self.assertEqual(roofline.Model().kv_bytes_per_token("int8"), 32 * 8 * 2 * 132)

    def bound(self, bandwidth, flops, **change):
        case = {"batch": 2, "context": 10, "weight_bits": 4.5, "kv": "bf16", **change}
        return roofline.bound(SMALL, roofline.Machine(bandwidth, flops, 1e9), **case)

    def test_bound(self):
        weights = self.bound(bandwidth=100, flops=1e9)
        self.assertEqual(weights[:3], (832 * 4.5 / 8, 320, 2 * (2 * 832 + 4 * 2 * 4 * 10)))
        self.assertAlmostEqual(weights.seconds, 7.88)
        self.assertAlmostEqual(weights.tokens_per_second, 2 / 7.88)
        self.assertEqual(weights.by, "weights")
        self.assertEqual(self.bound(bandwidth=100, flops=1e9, context=100).by, "K/V")
        computing = self.bound(bandwidth=1e9, flops=10)
        self.assertEqual((computing.seconds, computing.by), (396.8, "FLOPs"))
        self.assertTrue(weights.fits)
        self.assertFalse(self.bound(bandwidth=100, flops=1e9, context=10**8).fits)

    def test_table(self):
        # K and V of batch 1 take 16,384 bytes; the weights 468 or 1,664. Batch 2 fits in no form.
        table = roofline.table(SMALL, roofline.Machine(1000, 1e9, 17000), [1, 2], [1024]).splitlines()
        self.assertEqual(table[2:], ["| 1 | 1k | 0 | 0.00 GB | 0.00 GB | 16852.00 ms, 0/s, K/V | 16852.00 ms, 0/s, K/V "
                                     "| does not fit | does not fit |"])

    def test_the_document_keeps_the_table(self):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertEqual(roofline.main([]), 0)
        document = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
        self.assertIn(output.getvalue(), document, "put the output of scripts/cuda_roofline.py there anew")


if __name__ == "__main__":
    unittest.main()
