"""Is the checkout laid out as the architecture says: packages, import directions, names, sizes, weight of the root?

Everything but the last test reads source text only, so it also holds for code that cannot be imported here.
"""

import ast
import fnmatch
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tracer", "hooks", "analyzers", "schema", "cli")
MAX_LINES = 400

# folder -> what of ours it may import
MAY_IMPORT = {
    "schema": set[str](),
    "hooks": {"schema"},
    "tracer": {"schema", "hooks"},
    "analyzers": {"schema"},
    "cli": {"schema", "hooks", "tracer", "analyzers"},
}
# folder -> what of others it must never import, not even late
NEVER = {"schema": {"torch"}, "analyzers": {"torch"}}
# what importing these must not load: outside of a function never (hooks are themselves imported late, beside torch)
NEVER_EAGERLY = {
    "hooks": {"pyarrow", "duckdb", "rich", "opentelemetry", "typer"},
    "tracer/root": {"torch", "pyarrow", "duckdb", "rich", "opentelemetry", "typer", "numpy"},
}
# import name -> distribution, where they differ
DISTRIBUTION = {
    "pynvml": "nvidia-ml-py",
    "opentelemetry": "opentelemetry-sdk",
    "grpc": "opentelemetry-exporter-otlp-proto-grpc",
}
# frameworks that are observed if the job has them, and are never required
OBSERVED = {"lightning", "pytorch_lightning", "transformers", "accelerate", "deepspeed", "megatron", "torchtitan"}


def settings() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        parsed: dict[str, Any] = tomllib.load(file)
    return parsed


def sources() -> list[Path]:
    return sorted(
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts
    )


def packages_of_the_folders() -> dict[str, str]:
    """Package -> folder, relative to the checkout; a folder is a package when it has an __init__.py."""
    found = {}
    for init in sorted(ROOT.glob("*/**/__init__.py")):
        folder = init.parent.relative_to(ROOT)
        if folder.parts[0] in FOLDERS:
            is_root = folder == Path("tracer/root")
            found["rankscope" if is_root else ".".join(("rankscope", *folder.parts))] = folder.as_posix()
    return found


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Each import of a file as (absolute dotted name, whether it runs when the module is imported)."""
    package = package_of(path)
    for node, eager in walk(ast.parse(path.read_text(encoding="utf-8")), eager=True):
        if isinstance(node, ast.Import):
            yield from ((alias.name, eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "rankscope" else [node.module]
            )
            yield from ((name, eager) for name in names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) - node.level + 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from ((".".join((*base, name)), eager) for name in names)


def walk(node: ast.AST, eager: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from (
                (found, False) for statement in child.body for found, _ in [(statement, False), *walk(statement, False)]
            )
            continue
        yield child, eager
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from walk(child, eager and not is_function)


def package_of(path: Path) -> str:
    folder = path.parent.relative_to(ROOT)
    return "rankscope" if folder == Path("tracer/root") else ".".join(("rankscope", *folder.parts))


def folder_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def is_root_package(path: Path) -> bool:
    return path.parent == ROOT / "tracer" / "root"


def test_every_source_folder_is_a_package() -> None:
    missing = {
        path.parent.relative_to(ROOT).as_posix() for path in sources() if not (path.parent / "__init__.py").exists()
    }
    assert not missing


def test_declared_packages_are_the_folders() -> None:
    setuptools = settings()["tool"]["setuptools"]
    found = packages_of_the_folders()
    assert sorted(setuptools["packages"]) == sorted(found)
    for package, folder in setuptools["package-dir"].items():
        assert found[package] == folder


def test_data_files_are_declared() -> None:
    declared = settings()["tool"]["setuptools"]["package-data"]
    undeclared = []
    for package, folder in packages_of_the_folders().items():
        patterns = [*declared.get("*", []), *declared.get(package, [])]
        for path in (ROOT / folder).iterdir():
            is_data = path.is_file() and path.suffix not in (".py", ".pyc")
            if is_data and not any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns):
                undeclared.append(path.relative_to(ROOT).as_posix())
    assert not undeclared
    assert "*.sql" in declared["rankscope.analyzers"]


def test_types_are_announced() -> None:
    assert [folder for folder in FOLDERS if not (ROOT / folder / "py.typed").exists()] == []
    assert (ROOT / "tracer" / "root" / "py.typed").exists()


def test_no_folder_can_shadow_the_install() -> None:
    assert not (ROOT / "rankscope").exists()
    assert not (ROOT / "rankscope.py").exists()


def test_import_direction() -> None:
    wrong = []
    for path in sources():
        folder = folder_of(path)
        for name, _ in imports(path):
            top, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if top == "rankscope" and target in FOLDERS and target != folder and target not in MAY_IMPORT[folder]:
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert not wrong


def test_relative_inside_a_folder_absolute_across() -> None:
    wrong = []
    for path in sources():
        if is_root_package(path):
            continue  # rankscope/__init__.py lies inside tracer, but reaches into it from above
        if path.name == "sitecustomize.py":
            continue  # imported by the interpreter as a module of its own, outside of any package
        folder = folder_of(path)
        depth = len(path.parent.relative_to(ROOT).parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom):
                continue
            absolute = node.level == 0 and (node.module or "").split(".")[:2] == ["rankscope", folder]
            if absolute or node.level > depth:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong


def test_what_a_folder_must_never_import() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources()
        for name, _ in imports(path)
        if name.partition(".")[0] in NEVER.get(folder_of(path), set())
    ]
    assert not wrong


@pytest.mark.parametrize("folder", sorted(NEVER_EAGERLY))
def test_what_the_training_process_must_not_load(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / folder).glob("*.py"))
        for name, eager in imports(path)
        if eager and name.partition(".")[0] in NEVER_EAGERLY[folder]
    ]
    assert not wrong


def test_nothing_imports_the_bare_folder_names() -> None:
    files = [
        *sources(),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "examples").rglob("*.py"),
        *(ROOT / "benchmarks").rglob("*.py"),
    ]
    wrong = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            wrong += [f"{path.relative_to(ROOT)}: {name}" for name in names if name.partition(".")[0] in FOLDERS]
    assert not wrong


def test_third_party_imports_are_declared() -> None:
    project = settings()["project"]
    requirements = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    declared = {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower().replace("_", "-") for line in requirements}
    known = declared | {"rankscope", "opentelemetry-sdk"} | {name.replace("_", "-") for name in OBSERVED}
    undeclared = set()
    for path in sources():
        for name, _ in imports(path):
            top = name.partition(".")[0]
            distribution = DISTRIBUTION.get(top, top).lower().replace("_", "-")
            if top not in sys.stdlib_module_names and distribution not in known:
                undeclared.add(f"{path.relative_to(ROOT)}: {name}")
    assert not undeclared


def test_public_names_are_sorted_and_only_in_packages() -> None:
    wrong = []
    for path in sources():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                continue
            assert isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            names = ast.literal_eval(node.value)
            if path.name != "__init__.py" or list(names) != sorted(names) or len(set(names)) != len(names):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong


def test_no_source_file_is_too_long() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in sources()}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in sources()
        if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert not silent


@pytest.mark.parametrize("module", ["rankscope", "rankscope.auto"])
def test_importing_the_root_is_light(module: str) -> None:
    heavy = ("torch", "pyarrow", "duckdb", "rich")
    program = f"import sys, {module}; print(*(name for name in {heavy!r} if name in sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, cwd="/"
    )
    assert ran.stdout.split() == []
