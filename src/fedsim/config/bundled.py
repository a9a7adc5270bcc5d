"""The configurations that are installed with fedsim: `quickstart`, those of the paper, and the robustness studies."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
FOLDERS = PACKAGE / "configs", PACKAGE.parents[1] / "configs"  # of an installed wheel; of the repository


def folder() -> Path | None:
    """The folder of the configurations; None if they are not installed."""
    return next((path for path in FOLDERS if (path / "quickstart.toml").is_file()), None)


def names() -> list[str]:
    """Their names, for example "quickstart" and "paper/lambda"; those in deeper folders come last."""
    root = folder()
    found = [path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.toml")] if root else []
    return sorted(found, key=lambda name: (name.count("/"), name))


def portable(plugin: str) -> str:
    """A bundled plug-in, "configs/...", wherever fedsim is installed; others as they are."""
    root, (location, _, function) = folder(), plugin.rpartition(":")
    if root is None or not (path := Path(location).resolve()).is_relative_to(root.resolve()):
        return plugin
    return f"configs/{path.relative_to(root.resolve()).as_posix()}:{function}"


def located_plugin(name: str) -> str:
    """The plug-in that is named as `portable` does; others as they are."""
    root, (location, _, function) = folder(), name.rpartition(":")
    is_bundled = root is not None and not Path(location).exists() and (root.parent / location).is_file()
    return f"{root.parent / location}:{function}" if root is not None and is_bundled else name


def located(path: Path) -> Path:
    """`path` or, if there is no such file, the bundled file of that name, with or without "configs/" and ".toml"."""
    root = folder()
    if path.is_file() or path.is_absolute() or root is None:
        return path
    name = path.as_posix().removeprefix("configs/").removesuffix(".toml")
    return root / f"{name}.toml" if name in names() else path
