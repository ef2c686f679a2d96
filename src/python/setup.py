"""The wheel has shared libraries and no compiled module: any Python 3, one platform."""
from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Platform(Distribution):
    def has_ext_modules(self):
        return True


def version():
    with open("lierne/_binding.py") as file:
        return next(line.split("'")[1] for line in file if line.startswith("VERSION"))


setup(version=version(), cmdclass={"bdist_wheel": Wheel}, distclass=Platform)
