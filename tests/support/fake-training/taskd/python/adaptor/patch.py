"""A fake of TaskD's patch of torch's launcher, which calls `launch` where it is imported."""


def launch():
    import runpy

    runpy.run_module("torchrun", run_name="__main__")
