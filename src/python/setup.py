"""The wheel has shared libraries and no compiled module: any Python 3, one platform. In a source
distribution the C sources lie in source/, and building a wheel compiles them."""
import os
import re
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "source")


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Build(build_py):
    """Of a source distribution: make puts the package together (stage.sh), its files go into the wheel."""

    def run(self):
        super().run()
        if os.path.isdir(SOURCE) and not self.editable_mode:
            subprocess.run(["make", "-C", SOURCE, f"-j{os.cpu_count()}", "DEPS=0", "CUDA=0", f"PYTHON={sys.executable}",
                            "python"], check=True)
            shutil.copytree(os.path.join(SOURCE, "build", "python", "lierne"),
                            os.path.join(self.build_lib, "lierne"), dirs_exist_ok=True)


class Platform(Distribution):
    def has_ext_modules(self):
        return True


def version():
    """Of the headers, or of what was made from them."""
    header = os.path.join(SOURCE, "include", "lierne", "status.h")
    path = header if os.path.exists(header) else os.path.join(HERE, "lierne", "_binding.py")
    with open(path) as file:
        return re.search(r"""VERSION(?:_STRING| =) ["'](.*)["']""", file.read())[1]


setup(version=version(), cmdclass={"bdist_wheel": Wheel, "build_py": Build}, distclass=Platform)
