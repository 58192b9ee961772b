"""Kernel packages: found in the suites that carry them, downloaded and verified by apt, never installed.

apt runs with a configuration of its own: its state, cache and sources are in a private folder, so the machine's
package lists stay untouched and no root is needed. Proxy, credentials and the like stay the machine's.
"""

import functools
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from problem import Problem

KEYRINGS = Path("/usr/share/keyrings")


@dataclass(frozen=True)
class Distribution:
    """Where a distribution keeps its kernels."""

    keyring: Path
    flavour: str
    # Name of a kernel in the lab -> prefix of its version, and suites in the order to ask.
    kernels: dict
    # Suites whose name ends so are served from the mirror of such a suite.
    separate_mirror: tuple = ()


DISTRIBUTIONS = {
    "debian": Distribution(
        keyring=KEYRINGS / "debian-archive-keyring.gpg",
        flavour="amd64",
        kernels={
            "6.1": ("6.1", ("bookworm-security", "bookworm")),
            "6.12": ("6.12", ("trixie-security", "trixie", "bookworm-security", "bookworm-backports")),
            "7": ("7", ("trixie-backports", "sid")),
        },
        separate_mirror=("-security",),
    ),
    # Ubuntu has other versions: the nearest ones.
    "ubuntu": Distribution(
        keyring=KEYRINGS / "ubuntu-archive-keyring.gpg",
        flavour="generic",
        kernels={
            "6.1": ("6.2", ("jammy-updates", "jammy-security")),
            "6.12": ("6.11", ("noble-updates", "noble-security")),
            "7": ("7", ("resolute-updates", "resolute")),
        },
    ),
}


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    needs: str  # its Depends and Recommends


def os_release():
    lines = Path("/etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def distribution():
    here = os_release()
    try:
        return DISTRIBUTIONS[here["ID"]]
    except KeyError:
        raise Problem(
            f"no kernel packages are known for {here.get('PRETTY_NAME', 'this system')}: "
            "give one of your own with --kernel-deb FILE"
        ) from None


def where_from(kernel):
    """The version prefix and the suites of `kernel`: a name of the table, or a longer version such as 7.2."""
    known = distribution().kernels
    if kernel in known:
        return known[kernel]
    major = kernel.split(".")[0]
    if major in known and re.fullmatch(r"\d+(\.\d+)+", kernel):
        return kernel, known[major][1]
    raise Problem(f"no kernel '{kernel}': the lab has {', '.join(known)}, and --kernel-deb FILE for any other")


def download(kernel, folder):
    """Downloads the packages of `kernel` into `folder`; returns the .deb files, and which suite they are from."""
    prefix, suites = where_from(kernel)
    passed_over = []
    for suite in suites:
        mirror = mirror_of(suite)
        if mirror is None:
            passed_over.append(f"{suite} (its mirror is not in this machine's apt sources)")
            continue
        apt = PrivateApt(Path(folder) / suite, mirror, suite)
        if refused := apt.update():
            passed_over.append(f"{suite} ({refused})")
            continue
        if package := apt.newest_kernel(prefix):
            return apt.download(apt.with_parts(package)), suite
        passed_over.append(f"{suite} (carries none)")
    raise Problem(
        f"kernel {kernel}: found in no suite: {'; '.join(passed_over)}: "
        "mend the apt sources, or give a package with --kernel-deb FILE"
    )


def mirror_of(suite):
    """The address that serves `suite`, as the machine's own apt sources say; None where they name none."""
    wanted = "$(CREATED_BY) $(COMPONENT) $(RELEASE) $(REPO_URI)"
    # Without release info, so that a machine counts which has not yet downloaded any package list.
    listed = run("apt-get", "indextargets", "--no-release-info", "--format", wanted)
    here = os_release().get("VERSION_CODENAME", "")
    own = {here, "stable", "testing", "unstable", "sid"}
    ending = next((end for end in distribution().separate_mirror if suite.endswith(end)), "")
    for line in listed.splitlines():
        created_by, component, release, address = line.split(maxsplit=3)
        is_own = release in {name + ending for name in own}
        if created_by == "Packages" and component == "main" and is_own and not address.startswith("cdrom:"):
            return address
    return None


class PrivateApt:
    """apt with one suite as its only source, and all that it writes inside `folder`."""

    def __init__(self, folder, mirror, suite):
        self.folder = folder
        for inner in ("lists/partial", "archives/partial", "debs"):
            (folder / inner).mkdir(parents=True)
        sources = folder / "sources.list"
        sources.write_text(f"deb [arch=amd64 signed-by={distribution().keyring}] {mirror} {suite} main\n")
        settings = {
            "Dir::State": folder,
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": folder,
            "Dir::Etc::sourcelist": sources,
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Acquire::Languages": "none",
            "Acquire::Retries": "2",
            # The folder may lie in a home that apt's own user cannot enter.
            "APT::Sandbox::User": "",
        }
        self.options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]

    def update(self):
        """Fetches and verifies the suite's package list; returns why it cannot, or ''."""
        done = subprocess.run(
            ["apt-get", *self.options, "-qq", "-o", "APT::Update::Error-Mode=any", "update"],
            capture_output=True,
            text=True,
        )
        return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["apt-get update failed"])[0]

    def newest_kernel(self, prefix):
        pattern = rf"^linux-image-{re.escape(prefix)}\..*[0-9]-{distribution().flavour}$"
        names = [line.split()[0] for line in self.cache("search", "--names-only", pattern).splitlines()]
        # Cloud and real-time kernels match too: theirs is another flavour.
        names = [name for name in names if not re.search(r"-(rt|cloud|unsigned)-", name)]
        return max(self.show(names), key=by_version, default=None)

    def with_parts(self, package):
        """The package and those that it was split into: a kernel's image, binary and modules share its release."""
        release = package.name.removeprefix("linux-image-")
        parts = rf"linux-(?:base|binary|modules|modules-extra)-{re.escape(release)}(?![\w.+-])"
        return [package, *self.show(sorted(set(re.findall(parts, package.needs))))]

    def download(self, packages):
        wanted = [f"{package.name}={package.version}" for package in packages]
        debs = self.folder / "debs"
        run("apt-get", *self.options, "-qq", "download", *wanted, cwd=debs)
        return sorted(debs.glob("*.deb"))

    def show(self, names):
        if not names:
            return []
        stanzas = self.cache("show", *names).strip().split("\n\n")
        fields = [dict(re.findall(r"^([\w-]+): (.*)$", stanza, re.MULTILINE)) for stanza in stanzas]
        return [
            Package(f["Package"], f["Version"], f"{f.get('Depends', '')}, {f.get('Recommends', '')}") for f in fields
        ]

    def cache(self, *arguments):
        return run("apt-cache", *self.options, *arguments)


@functools.cmp_to_key
def _version_order(one, other):
    if one == other:
        return 0
    return -1 if subprocess.run(["dpkg", "--compare-versions", one, "lt", other]).returncode == 0 else 1


def by_version(package):
    return _version_order(package.version)


def run(*command, cwd=None):
    try:
        return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise Problem(f"{command[0]}: not on this machine: run 'tools/setup lab'") from None
    except subprocess.CalledProcessError as error:
        why = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        raise Problem(f"{command[0]} {command[-1]}: {why}") from None
