"""Hostile pickles instead of PFLlib's shards, which try to run code or to confuse their reader."""

import os
import pickle
import struct
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from hostile_files import TRACE, Code

HEADER = b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (), }".ljust(127) + b"\n"


def shards(folder: Path, content: bytes) -> None:
    """Write a PFLlib folder with two copies of this pickle."""
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
        with zipfile.ZipFile(folder / part / "0.npz", "w") as archive:
            archive.writestr("data.npy", HEADER + content)


class Calls:
    """Calls a function with arguments when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.called: tuple[Any, ...] = function, arguments

    def __reduce__(self) -> Any:
        return self.called


def dtype_bomb() -> bytes:
    """Return a pickled array that claims 2^40 values and has none."""
    whole = pickle.dumps(np.zeros(1, "u1"), 4)
    return whole.replace(b"K\x01\x85", b"\x8a\x06" + (2**40).to_bytes(6, "little") + b"\x85")


def forged_objects() -> bytes:
    """Return a pickled array of objects with bytes as values, which numpy would use as addresses of objects."""
    kind = Calls(np.dtype, "O8", False, True)
    kind.called = (*kind.called, (3, "|", None, None, None, -1, -1, 0))
    whole = Calls(np.zeros(1).__reduce__()[0], np.ndarray, (0,), b"b")
    whole.called = (*whole.called, (1, (1,), kind, False, bytes(8)))
    return pickle.dumps({"x": whole, "y": whole}, 4)


PICKLES: dict[str, tuple[bytes, str]] = {
    "makes a folder": (pickle.dumps({"x": Code(), "y": Code()}), "names posix.mkdir, which could run code"),
    "os.system": (pickle.dumps(Calls(os.system, f"mkdir {TRACE}")), "names posix.system"),
    "os.system, protocol 0": (pickle.dumps(Calls(os.system, f"mkdir {TRACE}"), 0), "names posix.system"),
    "eval": (pickle.dumps(Calls(eval, f"__import__('os').mkdir('{TRACE}')")), "names builtins.eval"),
    "subprocess": (pickle.dumps(Calls(subprocess.run, ["mkdir", TRACE])), "names subprocess.run"),
    "getattr of what is allowed": (pickle.dumps(Calls(getattr, np.ndarray, "tofile")), "names builtins.getattr"),
    "numpy.load": (b"cnumpy\nload\n(V/etc/passwd\ntR.", "names numpy.load"),
    "numpy.f2py": (b"cnumpy.f2py\ncompile\n.", "names numpy.f2py.compile"),
    "a name with dots": (b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.", "names numpy.ndarray.dump"),
    "a name out of a number": (b"\x80\x04K\x01K\x02\x93.", "STACK_GLOBAL requires str"),
    "calling an array type": (b"cnumpy\nndarray\n)R.", "not a whole pickle of arrays"),
    "calling a text": (b"\x80\x04\x8c\x0c_reconstruct)R.", "not a whole pickle of arrays"),
    "another encoding": (
        b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00rot\x86R.",
        "not a whole pickle of arrays",
    ),
    "an instance": (b"(iposix\nsystem\n.", "names posix.system"),
    "an object": (b"(cposix\nsystem\no.", "names posix.system"),
    "a new object": (b"\x80\x02cnumpy\nndarray\n)\x81.", "not a whole pickle of arrays"),
    "an extension": (b"\x80\x02\x82\x01.", "not a whole pickle of arrays"),
    "a persistent name": (b"Pname\n.", "not a whole pickle of arrays"),
    "a buffer from outside": (b"\x80\x05\x97.", "not a whole pickle of arrays"),
    "protocol 5": (pickle.dumps(np.zeros(3), 5), "names numpy._core.numeric._frombuffer"),
    "a type with fields": (pickle.dumps(np.zeros(1, [("a", "f4")]), 4), "of type 'V4'"),
    "texts": (pickle.dumps(np.array(["a" * 9]), 4), "of type 'U9'"),
    "dates": (pickle.dumps(np.zeros(1, "M8[s]"), 4), "of type 'M8'"),
    "2^40 values": (dtype_bomb(), "not a whole pickle of arrays"),
    "a list as a state": (b"\x80\x04]]b.", "has no arrays 'x' and 'y'"),
    "a type with an empty state": (
        b"\x80\x04cnumpy\ndtype\nX\x02\x00\x00\x00f4\x85R)b.",
        "not a whole pickle of arrays",
    ),
    "an array with a short state": (
        b"\x80\x04cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87RK\x01K\x02\x86b.",
        "not a whole pickle of arrays",
    ),
    "objects out of bytes": (forged_objects(), "only lists and lists of pairs are read"),
    "items of no list": (b"\x80\x04K\x01K\x02a.", "not a whole pickle of arrays"),
    "items of no dict": (b"\x80\x04]K\x01K\x02s.", "not a whole pickle of arrays"),
    "keys that are no text": (b"\x80\x04}]K\x02s.", "not a whole pickle of arrays"),
    "nothing on the stack": (b"\x80\x04.", "not a whole pickle of arrays"),
    "more than one thing": (b"\x80\x04K\x01K\x02.", "has no arrays 'x' and 'y'"),
    "no end": (b"\x80\x04K\x01", "not a whole pickle of arrays"),
    "no pickle": (b"\xff\xff\xff", "not a whole pickle of arrays"),
    "an empty pickle": (b"", "not a whole pickle of arrays"),
    "nothing put aside": (b"\x80\x04h\x07.", "not a whole pickle of arrays"),
    "put aside at place 2^32 - 1": (b"\x80\x04K\x01r\xff\xff\xff\xff.", "has no arrays 'x' and 'y'"),
    "a mark that is missing": (b"\x80\x04t.", "not a whole pickle of arrays"),
    "a text of 4 GiB": (b"\x80\x04X" + struct.pack("<I", 2**32 - 1) + b"a.", "not a whole pickle of arrays"),
    "a million marks": (b"(" * 1_000_001, "not a whole pickle of arrays"),
    "a number": (pickle.dumps(7), "has no arrays 'x' and 'y'"),
    "x alone": (pickle.dumps({"x": np.zeros((1, 2))}, 4), "has no arrays 'x' and 'y'"),
    "a list of texts": (pickle.dumps({"x": ["a"], "y": np.zeros(1, "i8")}, 4), "has texts as"),
    "integers that are no tokens": (
        pickle.dumps({"x": np.zeros((1, 2, 2), int), "y": np.zeros(1, "i8")}, 4),
        "tokens have (n, length)",
    ),
    "labels that are no integers": (pickle.dumps({"x": np.zeros((1, 2)), "y": np.full(1, 0.5)}, 4), "label 0.5 in row"),
    "a label too many": (pickle.dumps({"x": np.zeros((1, 2)), "y": np.zeros(2, "i8")}, 4), "labels of shape (2,)"),
}
"""Cases by description: the pickle, and words of the error message."""
