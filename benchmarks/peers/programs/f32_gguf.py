"""Runs in llama.cpp's environment: `f32_gguf.py SOURCE.gguf TARGET.gguf` writes the same model with every weight in float32.

All engines then multiply the same numbers; a quantised file would be less work for llama.cpp alone.
"""

import sys

from gguf import GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
from gguf.quants import dequantize

WRITTEN_BY_THE_WRITER = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", "general.file_type")


def main(source: str, target: str) -> None:
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    writer.add_file_type(LlamaFileType.ALL_F32)
    for name, field in reader.fields.items():
        if name not in WRITTEN_BY_THE_WRITER:
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type).astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
