"""Makes keys of requests: document.md, Keys made of attributes, with the standard library of Python 3.11 only."""

import hashlib
import ipaddress
import re


def one_path(path):
    """A path in one spelling. A ValueError says that the request is none that a gateway lets pass."""
    path = re.sub(rb"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*", b"", path.encode("utf-8", "surrogateescape"))
    path = re.split(rb"[?#]", path)[0]
    if not path.startswith(b"/") or re.search(rb"%(?![0-9A-Fa-f]{2})", path):
        raise ValueError("no path")
    parts = re.split(rb"(/|%2[Ff])", path)[1:]  # Slash, segment, slash, segment, and so on.
    kept, decoded = [], None
    for slash, segment, after in zip(parts[::2], parts[1::2], [*parts[2::2], None]):
        before = decoded
        decoded = re.sub(rb"%(..)", lambda found: bytes.fromhex(found[1].decode()), segment)
        if decoded == b"..":
            if segment != b".." or slash != b"/" or after not in (b"/", None) or before == b"":
                raise ValueError("a hidden `..`")
            kept = kept[:-1]
        elif decoded not in (b"", b"."):
            kept.append(decoded)
    whole_path = b"/" + b"/".join(kept) + (b"/" if kept and decoded in (b"", b".", b"..") else b"")
    characters = whole_path.decode("utf-8", "surrogateescape")
    return re.sub("[%?#\x00-\x1f\x7f\udc80-\udcff]", lambda found: f"%{ord(found[0]) & 0xff:02X}", characters)


def one_address(address):
    """The address of a client: four decimal numbers, or the first 64 bits."""
    ip = ipaddress.ip_address(address)
    if ip.version == 6 and int(ip) >> 32 in (0xffff, 0x0064ff9b << 64):
        ip = ipaddress.IPv4Address(int(ip) & 0xffffffff)
    return str(ip) if ip.version == 4 else f"{ipaddress.IPv6Address(int(ip) >> 64 << 64)}/64"


def one_host(host):
    """A host in ASCII small letters, without port and without dots at its end."""
    return re.sub(":[0-9]*$", "", host).encode().lower().decode().rstrip(".")


def join_key(values):
    """The key that the values of a policy's attributes make, in its order, as bytes; empty: the shared budget."""
    if len(values) > 1:
        values = [re.sub(r"([\\|])", r"\\\1", value) for value in values]
    key = "|".join(values).encode()
    return key if len(key) <= 1024 else b"\xff" + hashlib.sha256(key).digest()
