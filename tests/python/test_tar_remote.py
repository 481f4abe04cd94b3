"""leat.data.Tar over shards that need a local copy: servers that fail in every way, the cache, a
full disk, a process that is killed in the middle, and several that want the same."""

import hashlib
import hmac
import http.server
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import pytest
from conftest import PACKAGE
from loader_kit import leat_data
from tar_kit import by_webdataset, packed, same, write_tar

pytest.importorskip("webdataset")


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder. The query of a path selects a fault."""

    daemon_threads = True

    def __init__(self, folder):
        self.folder = os.fspath(folder)
        self.asked = []
        self.headers = []
        self.moved = {}  # path: the address it redirects to
        self.free = threading.Event()  # ends the wait of a slow answer
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.free.set()
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        path, _, mode = self.path.partition("?")
        server = self.server
        server.asked.append(self.path)
        server.headers.append(self.headers)
        times = server.asked.count(self.path)
        if path in server.moved:
            self.send_response(302)
            self.send_header("Location", server.moved[path])
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"moved")
            return
        try:
            with open(server.folder + path, "rb") as file:
                data = file.read()
        except OSError:
            self.send_error(404)
            return
        if mode == "forbidden":
            self.send_error(403)
        elif mode == "busy" or (mode == "busy-once" and times == 1):
            self.send_error(503)
        elif mode == "elsewhere":
            self.send_response(302)
            self.send_header("Location", path)
            self.end_headers()
        elif mode == "to-file":
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()
        else:
            self.send(data, mode, times)

    def send(self, data, mode, times):
        length = len(data)
        if mode == "too-long":  # announces more than it sends
            length += 1000
        elif mode == "too-short":
            length //= 2
        self.send_response(200)
        if mode != "silent-end":
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if mode == "cut" or (mode == "cut-once" and times == 1) or mode == "silent-end":
            data = data[: len(data) // 2]
        if mode == "slow":
            self.wfile.write(data[:1000])
            self.wfile.flush()
            self.server.free.wait(60)
            return
        try:
            self.wfile.write(data)
        except OSError:
            pass


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def other_server(tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    server = Server(folder)
    yield server
    server.close()


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    server = Server(folder)
    for n in range(3):
        packed(write_tar(folder / f"s-{n}.tar", 9, 9 * n), "gz")
        packed(folder / f"s-{n}.tar", "zst")
    yield server
    server.close()


def expected(server):
    return by_webdataset(*(f"{server.folder}/s-{n}.tar" for n in range(3)))


def no_copy(folder):
    return not os.path.exists(folder) or os.listdir(folder) == []


# ---- Fetching.


@pytest.mark.parametrize("ending", ("", ".gz", ".zst"))
@pytest.mark.parametrize("cached", (False, True))
def test_download(server, tmp_path, ending, cached):
    cache = tmp_path / "cache" if cached else None
    shards = f"{server.url}/s-{{0..2}}.tar{ending}"
    for _ in range(2):
        tar = leat_data.Tar(shards, cache_dir=cache)
        samples = expected(server)
        assert len(tar) == len(samples) == 27
        assert all(same(a, b) for a, b in zip(tar, samples))
    assert len(server.asked) == (3 if cached else 6)
    if cached:
        names = os.listdir(cache)
        assert len(names) == 3 and all(name.endswith(".tar") for name in names)
        for name in names:  # copies are plain archives
            n = name.split("_")[0]
            assert (cache / name).read_bytes() == open(f"{server.folder}/{n}.tar", "rb").read()


@pytest.mark.parametrize(
    "mode, error, times",
    (
        ("forbidden", "answered 403", 1),
        ("busy", "answered 503", 3),
        ("cut", "could not be downloaded.*bytes", 3),
        ("too-long", "could not be downloaded.*bytes", 3),
        ("too-short", "cut short", 1),
        ("silent-end", "cut short", 1),
        ("to-file", "could not be downloaded", 1),
    ),
)
def test_servers_that_fail(server, tmp_path, mode, error, times):
    cache = tmp_path / "cache"
    with pytest.raises((OSError, ValueError), match=error) as caught:
        leat_data.Tar(f"{server.url}/s-0.tar?{mode}", cache_dir=cache)
    assert "s-0.tar" in str(caught.value) and mode not in str(caught.value)
    assert len(server.asked) == times
    assert no_copy(cache)


def test_a_missing_shard(server, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"s-7\.tar: the server answered 404"):
        leat_data.Tar(f"{server.url}/s-7.tar", cache_dir=tmp_path / "cache")
    assert len(server.asked) == 1 and no_copy(tmp_path / "cache")


@pytest.mark.parametrize("mode", ("busy-once", "cut-once", "elsewhere"))
def test_servers_that_recover(server, tmp_path, mode):
    tar = leat_data.Tar(f"{server.url}/s-0.tar.gz?{mode}", cache_dir=tmp_path / "cache")
    assert len(tar) == 9 and len(server.asked) == 2


def test_a_server_that_stops_sending(server, tmp_path):
    with pytest.raises(OSError, match="no byte in 1 s"):
        leat_data.Tar(f"{server.url}/s-0.tar?slow", cache_dir=tmp_path / "cache", timeout=1)
    assert no_copy(tmp_path / "cache")


def test_no_server():
    with pytest.raises(OSError, match="could not be downloaded"):
        leat_data.Tar("http://127.0.0.1:1/s.tar", timeout=1)


def test_other_schemes():
    for shard in ("file:///etc/passwd", "gs://b/k.tar", "ftp://h/x.tar"):
        with pytest.raises(ValueError, match="http, https or s3"):
            leat_data.Tar(shard)


def test_secrets_are_not_shown(server):
    host = server.url.replace("http://", "")
    with pytest.raises(OSError) as caught:
        leat_data.Tar(f"http://user:secret@{host}/none.tar?signature=abc")
    assert "none.tar" in str(caught.value)
    assert not any(word in str(caught.value) for word in ("user", "secret", "signature"))


def test_ctrl_c_ends_a_download(server):
    def press():
        until(lambda: server.asked)
        os.kill(os.getpid(), signal.SIGINT)

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=press).start()
        leat_data.Tar(f"{server.url}/s-0.tar?slow")
    assert time.monotonic() - start < 30  # the timeout is twice that


# ---- s3.


def put_bucket(server):
    folder = os.path.join(server.folder, "bucket", "some dir")
    os.makedirs(folder)
    write_tar(os.path.join(folder, "s+0.tar"), 5)
    return "s3://bucket/some dir/s+0.tar"


def test_s3_by_endpoint(server, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    shard = put_bucket(server)
    os.symlink(os.path.join(server.folder, "bucket"), os.path.join(server.folder, "x"))
    real = os.path.join(server.folder, "bucket", "some%20dir")
    os.symlink("some dir", real)  # the server does not decode escapes
    os.symlink("s+0.tar", os.path.join(real, "s%2B0.tar"))
    assert len(leat_data.Tar(shard, endpoint_url=server.url + "/")) == 5
    assert server.asked == ["/bucket/some%20dir/s%2B0.tar"]
    assert "Authorization" not in server.headers[0]
    monkeypatch.setenv("LEAT_S3_ENDPOINT", server.url)
    assert len(leat_data.Tar(shard)) == 5
    with pytest.raises(ValueError, match="s3://bucket/key"):
        leat_data.Tar("s3://bucket")


def test_s3_is_signed(server, monkeypatch):
    folder = os.path.join(server.folder, "bucket")
    os.makedirs(folder)
    write_tar(os.path.join(folder, "s.tar"), 5)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a+secret/key")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert len(leat_data.Tar("s3://bucket/s.tar", endpoint_url=server.url)) == 5
    (headers,) = server.headers
    said = headers["Authorization"]
    assert said.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert headers["x-amz-security-token"] == "a-token"
    assert said.rpartition("Signature=")[2] == signature(headers, "/bucket/s.tar", "a+secret/key")


SECRET_HEADERS = ("Authorization", "x-amz-security-token")


def secrets_sent(server):
    return [[name for name in SECRET_HEADERS if name in headers] for headers in server.headers]


def test_a_redirect_to_another_host_carries_no_credentials(server, other_server, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token")
    write_tar(os.path.join(other_server.folder, "s.tar"), 5)
    server.moved = {"/bucket/s.tar": other_server.url + "/s.tar"}
    assert len(leat_data.Tar("s3://bucket/s.tar", endpoint_url=server.url)) == 5
    assert secrets_sent(server) == [list(SECRET_HEADERS)]
    assert secrets_sent(other_server) == [[]]
    # There and back: the first host does not get them again either.
    server.moved["/bucket/s.tar"] = other_server.url + "/back"
    other_server.moved = {"/back": server.url + "/s-0.tar"}
    server.headers.clear(), other_server.headers.clear()
    assert len(leat_data.Tar("s3://bucket/s.tar", endpoint_url=server.url)) == 9
    assert secrets_sent(server) == [list(SECRET_HEADERS), []]
    assert secrets_sent(other_server) == [[]]
    # A password of an address.
    server.moved["/s.tar"] = other_server.url + "/s.tar"
    server.headers.clear(), other_server.headers.clear()
    assert len(leat_data.Tar(server.url.replace("//", "//user:secret@") + "/s.tar")) == 5
    assert secrets_sent(server) == [["Authorization"]]
    assert secrets_sent(other_server) == [[]]


@pytest.mark.parametrize("absolute", (False, True))
def test_a_redirect_within_a_host_keeps_the_credentials(server, monkeypatch, absolute):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token")
    start = server.url if absolute else ""
    server.moved = {"/bucket/s.tar": start + "/s-0.tar", "/moved.tar": start + "/s-0.tar"}
    assert len(leat_data.Tar("s3://bucket/s.tar", endpoint_url=server.url)) == 9
    assert secrets_sent(server) == [list(SECRET_HEADERS)] * 2
    path = "/s-0.tar"
    signed = server.headers[1]["Authorization"].rpartition("Signature=")[2]
    assert signed == signature(server.headers[1], path, "secret")
    server.headers.clear()
    assert len(leat_data.Tar(server.url.replace("//", "//user:secret@") + "/moved.tar")) == 9
    assert secrets_sent(server) == [["Authorization"]] * 2


def test_redirects_without_end(server):
    server.moved = {"/a.tar": "/b.tar", "/b.tar": "/a.tar"}
    with pytest.raises(OSError, match=r"a\.tar could not be downloaded: .*redirects"):
        leat_data.Tar(server.url + "/a.tar")
    assert len(server.asked) == 6


def test_copies_from_two_endpoints_are_kept_apart(server, other_server, tmp_path, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    for one, samples in ((server, 5), (other_server, 7)):
        os.makedirs(os.path.join(one.folder, "bucket"))
        write_tar(os.path.join(one.folder, "bucket", "s.tar"), samples)
    cache = tmp_path / "cache"
    for _ in range(2):
        for one, samples in ((server, 5), (other_server, 7)):
            tar = leat_data.Tar("s3://bucket/s.tar", endpoint_url=one.url, cache_dir=cache)
            assert len(tar) == samples
    assert len(server.asked) == len(other_server.asked) == 1
    again = leat_data.Tar("s3://bucket/s.tar", endpoint_url=server.url + "/", cache_dir=cache)
    assert len(again) == 5 and len(server.asked) == 1


def signature(headers, path, secret):
    """Amazon's signature, version 4, over the signed headers."""
    said = headers["Authorization"]
    names = said.partition("SignedHeaders=")[2].partition(",")[0]
    scope = said.partition("Credential=")[2].partition(",")[0].partition("/")[2]
    lines = [f"{name}:{headers[name].strip()}" for name in names.split(";")]
    payload = headers["x-amz-content-sha256"]
    request = "\n".join(["GET", path, "", *lines, "", names, payload])
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, digest])
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


# ---- The cache.


def test_compressed_shards_are_decompressed_once(tmp_path):
    path = packed(write_tar(tmp_path / "s.tar"), "gz")
    cache = tmp_path / "cache"
    assert len(leat_data.Tar(path, cache_dir=cache)) == 11
    (name,) = os.listdir(cache)
    first = os.stat(cache / name)
    assert len(leat_data.Tar(path, cache_dir=cache)) == 11
    assert os.stat(cache / name) == first or os.stat(cache / name).st_mtime == first.st_mtime
    packed(write_tar(tmp_path / "s.tar", 12), "gz")  # changed content, another copy
    assert len(leat_data.Tar(path, cache_dir=cache)) == 12
    assert len(os.listdir(cache)) == 2


def test_temporary_copies_are_unlinked(server, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", os.fspath(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "tmp").mkdir()
    tar = leat_data.Tar(f"{server.url}/s-0.tar")
    assert len(tar) == 9 and os.listdir(tmp_path / "tmp") == []
    held = [
        os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_link(fd)
    ]
    assert any(str(tmp_path / "tmp") in path and "(deleted)" in path for path in held)


def _is_link(fd):
    try:
        return bool(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        return False


def test_cache_bytes(server, tmp_path):
    size = sum(os.path.getsize(f"{server.folder}/s-{n}.tar") for n in range(3))
    shards = f"{server.url}/s-{{0..2}}.tar.gz"
    for cache in (None, tmp_path / "cache"):
        with pytest.raises(OSError, match="take more than cache_bytes"):
            leat_data.Tar(shards, cache_dir=cache, cache_bytes=size - 1)
        assert len(leat_data.Tar(shards, cache_dir=cache, cache_bytes=size)) == 27
    with pytest.raises(OSError, match="cache_bytes"):  # existing copies count
        leat_data.Tar(shards, cache_dir=tmp_path / "cache", cache_bytes=size - 1)


def test_a_decompression_bomb_is_stopped_by_cache_bytes(tmp_path):
    path = tmp_path / "bomb.tar.zst"
    zeros = subprocess.run(
        "head -c 2000000000 /dev/zero | zstd -c", shell=True, capture_output=True, check=True
    )
    path.write_bytes(zeros.stdout)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(OSError, match="cache_bytes"):
        leat_data.Tar(path, cache_dir=tmp_path / "cache", cache_bytes=20_000_000)
    assert no_copy(tmp_path / "cache")


def test_a_file_size_limit(server, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(OSError, match=r"The copy of .*s-0\.tar\.gz cannot be written to"):
            leat_data.Tar(f"{server.url}/s-0.tar.gz", cache_dir=tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert no_copy(tmp_path / "cache")


def test_a_full_disk(server, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    said = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]
    if subprocess.run(said, capture_output=True).returncode:
        pytest.skip("a small disk needs root")
    try:
        for ending in ("", ".gz"):
            with pytest.raises(OSError, match="free on its disk"):
                leat_data.Tar(f"{server.url}/s-{{0..2}}.tar{ending}", cache_dir=disk / "cache")
            assert not [n for n in os.listdir(disk / "cache") if n.endswith(".part")]
    finally:
        subprocess.run(["umount", disk], check=True)


# ---- Killed, and two at once.

OPEN = """
import sys
sys.path.insert(0, {package!r})
from leat import _engine
print("begin", flush=True)
source = _engine.source_tar(({shard!r},), (), {cache!r}, 0, None, 60, False, 0)
print(source.count, flush=True)
"""


def start(shard, cache):
    script = OPEN.format(
        package=os.path.dirname(PACKAGE), shard=os.fsencode(shard), cache=os.fspath(cache)
    )
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )


def until(true, seconds=30):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def parts(cache):
    return [name for name in os.listdir(cache) if name.endswith(".part")] if cache.exists() else []


def test_a_killed_process_leaves_no_complete_copy(server, tmp_path):
    cache = tmp_path / "cache"
    address = f"{server.url}/s-0.tar?slow"
    process = start(address, cache)
    until(lambda: parts(cache) and os.path.getsize(cache / parts(cache)[0]) == 1000)
    process.kill()
    process.wait()
    assert len(os.listdir(cache)) == 1  # a .part file
    server.free.set()
    os.rename(f"{server.folder}/s-0.tar", f"{server.folder}/keep")
    with pytest.raises(FileNotFoundError):  # the .part file is not used
        leat_data.Tar(address, cache_dir=cache)
    assert os.listdir(cache) == []


def test_an_incomplete_copy_is_made_again(server, tmp_path):
    cache = tmp_path / "cache"
    path = f"{server.folder}/s-0.tar.gz"
    leat_data.Tar(path, cache_dir=cache)
    (name,) = os.listdir(cache)
    whole = (cache / name).read_bytes()
    os.unlink(cache / name)
    (cache / (name + ".part")).write_bytes(b"x" * (len(whole) + 5000))
    assert len(leat_data.Tar(path, cache_dir=cache)) == 9
    assert os.listdir(cache) == [name]
    assert (cache / name).read_bytes() == whole


def test_a_waiting_process_takes_over_when_the_first_is_killed(server, tmp_path):
    cache = tmp_path / "cache"
    address = f"{server.url}/s-0.tar?slow"
    first = start(address, cache)
    until(lambda: parts(cache))
    second = start(address, cache)
    assert second.stdout.readline() == "begin\n"
    time.sleep(0.3)
    assert len(server.asked) == 1  # it waits
    first.kill()
    first.wait()
    until(lambda: len(server.asked) == 2)
    second.kill()
    second.wait()


def test_several_processes_download_once(server, tmp_path):
    cache = tmp_path / "cache"
    address = f"{server.url}/s-0.tar.gz"
    processes = [start(address, cache) for _ in range(4)]
    for process in processes:
        assert process.communicate()[0] == "begin\n9\n"
        assert process.returncode == 0
    assert len(server.asked) == 1 and len(os.listdir(cache)) == 1


def test_a_damaged_archive_is_not_kept(server, tmp_path):
    with open(f"{server.folder}/s-0.tar", "r+b") as file:
        file.seek(2048)
        file.write(b"\xff" * 512)
    for shard in (f"{server.url}/s-0.tar", packed(f"{server.folder}/s-0.tar", "gz")):
        with pytest.raises(ValueError, match="header at byte 2048"):
            leat_data.Tar(shard, {"cls": "int"}, cache_dir=tmp_path / "cache")
        assert no_copy(tmp_path / "cache")


def _read_all(address, cache, queue):
    tar = leat_data.Tar(address, cache_dir=cache)
    queue.put([sample["cls"] for sample in tar])


def test_forked_processes_share_the_cache(server, tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    arguments = (f"{server.url}/s-{{0..2}}.tar.gz", tmp_path / "cache", queue)
    processes = [context.Process(target=_read_all, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    seen = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert seen == [[i % 7 for i in range(27)]] * 2
    assert len(server.asked) == 3


# ---- Without libcurl.


def test_a_missing_libcurl_is_named(tmp_path):
    block = tmp_path / "block.c"
    block.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <string.h>\n"
        "void *dlopen(const char *name, int flags) {\n"
        '    if (name && strstr(name, "libcurl")) return 0;\n'
        '    void *(*real)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");\n'
        "    return real(name, flags);\n}\n"
    )
    built = os.fspath(tmp_path / "block.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, block], check=True)
    script = OPEN.format(package=os.path.dirname(PACKAGE), shard=b"http://h/s.tar", cache=None)
    said = subprocess.run(
        [sys.executable, "-c", script],
        env=dict(os.environ, LD_PRELOAD=built),
        capture_output=True,
        text=True,
    )
    assert "libcurl.so" in said.stderr and "not installed" in said.stderr
