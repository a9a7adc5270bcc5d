"""The configurations that come with fedsim: `quickstart`, and those of the paper and of the robustness studies."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
PLACES = PACKAGE / "configs", PACKAGE.parents[1] / "configs"  # of an installed wheel; of the repository


def folder() -> Path | None:
    """Where they are."""
    return next((place for place in PLACES if (place / "quickstart.toml").is_file()), None)


def names() -> list[str]:
    """What they are called, for example "quickstart" and "paper/lambda"."""
    place = folder()
    found = place.rglob("*.toml") if place else ()
    return sorted(str(path.relative_to(place).with_suffix("").as_posix()) for path in found if place)


def located(path: Path) -> Path:
    """`path`; where there is no such file, fedsim's of that name, with or without "configs/" and ".toml"."""
    place = folder()
    if path.exists() or path.is_absolute() or place is None:
        return path
    name = path.as_posix().removeprefix("configs/").removesuffix(".toml")
    return place / f"{name}.toml" if name in names() else path
