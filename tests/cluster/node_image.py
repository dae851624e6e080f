"""kind's node image, put together from a Debian, kind's own files and the programs that we built.

It follows the Dockerfile of kind's base image and ``kind build node-image``, without a container engine: a copy of the
node's root gets kind's files and our programs, and the images that kubeadm asks for go into the store of the
containerd that will run there. So a node needs no registry.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from tests.cluster import binaries, cache, image, node_root, versions
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import contained, run
from tests.cluster.screen import step

_NODE_FILES = Path(__file__).with_name("node")
_KINDNET_IMAGE = "localhost/headrace-kindnet:latest"
_COPY_TIMEOUT_S = 300
_IMPORT_TIMEOUT_S = 300

# Programs, beside our own, that kube-proxy and kindnet call.
_NETWORK_PROGRAMS = (
    "usr/bin/dash",
    "usr/bin/ip",
    "usr/bin/kmod",
    "usr/sbin/conntrack",
    "usr/sbin/nft",
    "usr/sbin/xtables-legacy-multi",
    "usr/sbin/xtables-nft-multi",
)
# dockerd writes a node's DNS rules with the nft variant, so kind's entrypoint chooses that for the node; pods of
# the host's network have to agree with it.
_NETWORK_LINKS = {
    "usr/bin/sh": "dash",
    "usr/sbin/modprobe": "../bin/kmod",
    **{
        f"usr/sbin/{family}tables{action}": "xtables-nft-multi"
        for family in ("ip", "ip6")
        for action in ("", "-save", "-restore")
    },
}

_IMPORT_SCRIPT = """
set -eu
containerd --config /import/containerd.toml >/import/containerd.log 2>&1 &
tries=0
until ctr --address /import/containerd.sock version >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ $tries -gt 150 ]; then cat /import/containerd.log >&2; exit 1; fi
    sleep 0.2
done
for archive in /import/*.tar; do
    # Not unpacked here: the node's containerd does that at first use, on the file system it finds then.
    ctr --address /import/containerd.sock --namespace k8s.io images import --no-unpack "$archive"
done
kill $!
wait $! || true
"""
_IMPORT_CONFIG = """
version = 2
root = "/var/lib/containerd"
state = "/import/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "/import/containerd.sock"
"""


def reference(programs: Path) -> str:
    return f"localhost/headrace-node:{_key(programs)}"


def node_image(root: Path, programs: Path) -> Path:
    """The folder with the image, for ``dockerd.load``."""

    def build(scratch: Path) -> None:
        with step("Putting the node image together"):
            node = scratch / "node"
            run(["cp", "--archive", str(root), str(node)], timeout_s=_COPY_TIMEOUT_S)
            _add_kind_files(node, binaries.kind_sources() / "images" / "base" / "files")
            _prepare_systemd(node)
            _add_programs(node, programs)
            images = _wanted_images(programs)
            _configure_containerd(node, next(name for name in images if name.split("/")[-1].startswith("pause:")))
            _import_images(node, images, programs, scratch)
            image.write(
                scratch / "image",
                reference(programs),
                node,
                entrypoint=["/usr/local/bin/entrypoint", "/sbin/init"],
                environment=["container=docker"],
                # What systemd takes as "shut down".
                settings={"StopSignal": "SIGRTMIN+3"},
            )
            shutil.rmtree(node)

    return cache.ensure("node-image", _key(programs), build) / "image"


def _key(programs: Path) -> str:
    # The programs' folder is named after its own key.
    return cache.fingerprint(
        programs.parent.name, node_root.key(), versions.KIND, _NODE_FILES, Path(__file__), Path(image.__file__)
    )


# ── the node's files ─────────────────────────────────────────────────────────────────────────────────


def _add_kind_files(node: Path, files: Path) -> None:
    for source in sorted(files.rglob("*")):
        target = node / source.relative_to(files)
        if source.is_dir():
            target.mkdir(exist_ok=True)
            continue
        shutil.copyfile(source, target)
        # Go's module cache keeps no permissions.
        executable = target.is_relative_to(node / "kind" / "bin") or target.is_relative_to(node / "usr")
        target.chmod(0o755 if executable else 0o644)
    (node / "kind" / "version").write_text(versions.KUBERNETES)
    shutil.copytree(_NODE_FILES, node / "kind" / "manifests")
    (node / "etc" / "kubernetes" / "manifests").mkdir(parents=True)


def _prepare_systemd(node: Path) -> None:
    """A node starts only what kind needs; what a Debian would start beside it is unlinked, as in kind's Dockerfile."""
    units = node / "lib" / "systemd" / "system"
    for pattern in (
        "sysinit.target.wants/systemd-tmpfiles-setup.service",
        "multi-user.target.wants/*",
        "local-fs.target.wants/*",
        "sockets.target.wants/*udev*",
        "sockets.target.wants/*initctl*",
        "basic.target.wants/*",
    ):
        _unlink_all(units, pattern)
    own_units = node / "etc" / "systemd" / "system"
    _unlink_all(own_units, "*.wants/*")
    wanted = own_units / "multi-user.target.wants"
    wanted.mkdir(exist_ok=True)
    for unit in ("containerd", "kubelet", "undo-mount-hacks"):
        (wanted / f"{unit}.service").symlink_to(f"/etc/systemd/system/{unit}.service")
    # It would register formats with the kernel, which the host shares.
    (own_units / "systemd-binfmt.service").symlink_to("/dev/null")
    with (node / "etc" / "systemd" / "journald.conf").open("a") as journald:
        journald.write("ReadKMsg=no\n")
    _link(node / "sbin" / "init", "/usr/lib/systemd/systemd")


def _add_programs(node: Path, programs: Path) -> None:
    for name in ("kubeadm", "kubectl", "kubelet"):
        shutil.copy(programs / name, node / "usr" / "bin" / name)
    shutil.copy(programs / "crictl", node / "usr" / "local" / "bin" / "crictl")
    # Where kind's units look for them.
    for name in ("containerd", "containerd-shim-runc-v2", "ctr"):
        _link(node / "usr" / "local" / "bin" / name, f"/usr/bin/{name}")
    plugins = node / "opt" / "cni" / "bin"
    plugins.mkdir(parents=True)
    for name in ("host-local", "loopback", "portmap", "ptp"):
        shutil.copy(node / "usr" / "lib" / "cni" / name, plugins / name)
    (node / "etc" / "cni" / "net.d").mkdir(parents=True, exist_ok=True)


def _configure_containerd(node: Path, pause_image: str) -> None:
    spec = json.loads(run(["chroot", str(node), "ctr", "oci", "spec"], timeout_s=60))
    hooks = spec.setdefault("hooks", {}).setdefault("createContainer", [])
    hooks.append({"path": "/kind/bin/mount-product-files.sh"})
    del spec["process"]["rlimits"]
    (node / "etc" / "containerd" / "cri-base.json").write_text(json.dumps(spec))
    config = node / "etc" / "containerd" / "config.toml"
    config.write_text(containerd_config(config.read_text(), pause_image))
    # Lowering the score of a process takes a capability that a machine may not give us.
    unit = node / "etc" / "systemd" / "system" / "containerd.service"
    unit.write_text(re.sub(r"^OOMScoreAdjust=.*\n", "", unit.read_text(), flags=re.MULTILINE))


def containerd_config(kinds: str, pause_image: str) -> str:
    """kind's configuration, with what differs here: the pause image, no FUSE, and no lowered OOM scores."""
    changed = re.sub(r'sandbox_image = ".*"', f'sandbox_image = "{pause_image}"', kinds)
    changed = changed.replace("restrict_oom_score_adj = false", "restrict_oom_score_adj = true")
    changed = re.sub(r"^\[proxy_plugins\]\n.*?(?=^\[plugins)", "", changed, count=1, flags=re.MULTILINE | re.DOTALL)
    for expected in (pause_image, "restrict_oom_score_adj = true"):
        if expected not in changed:
            raise ClusterProblem(f"kind {versions.KIND} configures containerd in another way: no place for {expected}.")
    return changed


# ── the images on the node ───────────────────────────────────────────────────────────────────────────


def _wanted_images(programs: Path) -> list[str]:
    """The names that kubeadm will ask for, each with its registry and its version."""
    command = [str(programs / "kubeadm"), "config", "images", "list", "--kubernetes-version", versions.KUBERNETES]
    return run(command, timeout_s=60).split()


def _import_images(node: Path, references: list[str], programs: Path, scratch: Path) -> None:
    archives = node / "import"
    archives.mkdir()
    for name in [*references, _KINDNET_IMAGE]:
        program = name.split("/")[-1].split(":")[0].removeprefix("headrace-")
        root = scratch / f"{program}-root"
        _write_image_root(root, program, programs, node)
        folder = scratch / f"{program}-image"
        image.write(folder, name, root, entrypoint=[f"/usr/local/bin/{program}"])
        image.pack(folder, archives / f"{program}.tar")
        shutil.rmtree(root)
        shutil.rmtree(folder)
    (archives / "containerd.toml").write_text(_IMPORT_CONFIG)
    shutil.rmtree(node / "var" / "lib" / "containerd", ignore_errors=True)
    run(
        contained(["chroot", str(node), "/bin/sh", "-c", _IMPORT_SCRIPT], proc=node / "proc"),
        timeout_s=_IMPORT_TIMEOUT_S,
        doing="importing the images into the node's containerd",
    )
    shutil.rmtree(archives)


def _write_image_root(root: Path, program: str, programs: Path, node: Path) -> None:
    for folder in ("usr/local/bin", "etc", "tmp", "run", "var"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/:/sbin/nologin\n")
    shutil.copy(programs / program, root / "usr" / "local" / "bin" / program)
    if program in ("kube-proxy", "kindnet"):
        _add_network_programs(root, node)


def _add_network_programs(root: Path, node: Path) -> None:
    """iptables and its like from the node's Debian, with the libraries that they are linked to."""
    for folder in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / folder).mkdir(exist_ok=True)
        (root / folder).symlink_to(f"usr/{folder}")
    extensions = next((node / "usr" / "lib").glob("*-linux-gnu/xtables"))
    shutil.copytree(extensions, root / extensions.relative_to(node), symlinks=True)
    linked = [*_NETWORK_PROGRAMS, *(str(path.relative_to(node)) for path in extensions.glob("*.so"))]
    answer = run(["chroot", str(node), "ldd", *(f"/{path}" for path in linked)], timeout_s=60)
    libraries = set(re.findall(r"(?:=> |^\t)(/\S+) \(0x", answer, re.MULTILINE))
    wanted = [*(f"/{path}" for path in _NETWORK_PROGRAMS), *sorted(libraries)]
    # Links are followed within the node: an absolute one would lead to a file of this machine.
    real = run(["chroot", str(node), "readlink", "--canonicalize-existing", *wanted], timeout_s=60).split()
    for path, source in zip(wanted, real, strict=True):
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(node / source.lstrip("/"), target)
    for name, destination in _NETWORK_LINKS.items():
        _link(root / name, destination)
    for name in ("ethertypes", "protocols", "services"):
        if (node / "etc" / name).exists():
            shutil.copy(node / "etc" / name, root / "etc" / name)


def _link(path: Path, destination: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(destination)


def _unlink_all(folder: Path, pattern: str) -> None:
    for path in list(folder.glob(pattern)):
        path.unlink()
