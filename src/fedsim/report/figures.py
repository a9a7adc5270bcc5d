"""All figures of run folders."""


def figures(results):
    return {}
