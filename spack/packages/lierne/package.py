# `spack repo add spack`, then `spack dev-build lierne@main` in a copy of the sources: there is no archive
# of a release yet. Never run: it follows the documentation of Spack 0.23 to 1.1.
from spack.package import *

try:  # since Spack 1.0 these are in the repository of packages, before that in spack.package
    from spack_repo.builtin.build_systems.cuda import CudaPackage
    from spack_repo.builtin.build_systems.makefile import MakefilePackage
except ImportError:
    pass


class Lierne(MakefilePackage, CudaPackage):
    """Moves tensors between parallel layouts that share the same ranks, forward and backward, exactly:
    bridges between an encoder and a language model, remote rows of graphs, halos, collectives."""

    license("Apache-2.0")

    version("main")

    variant("mpi", default=True, description="Build liblierne_mpi and lierne-run")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")  # nvcc calls it
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cjson")
    depends_on("xxhash", type="build")  # inlined
    depends_on("mpi", when="+mpi")

    def setup_build_environment(self, env):
        # The Makefile looks for CUDA before it has its own variables.
        env.set("CUDA_HOME", self.spec["cuda"].prefix if self.spec.satisfies("+cuda") else "none")
        env.set("NCCL_HOME", "none")

    @property
    def options(self):
        spec = self.spec
        chosen = [f"PREFIX={self.prefix}"]
        chosen.append(f"MPICC={spec['mpi'].mpicc}" if spec.satisfies("+mpi") else "MPICC=none")
        archs = [arch for arch in spec.variants["cuda_arch"].value if arch != "none"]
        if spec.satisfies("+cuda") and archs:
            chosen.append(f"CUDA_ARCHS={' '.join(archs)}")
        return chosen

    def build(self, spec, prefix):
        make("all", *self.options)

    def check(self):  # make check needs what no other part does, Criterion and Python
        Executable("build/lierne")("simulate", "grids/mimo-colocated-fanin-8.json", "--bridge", "images_to_language")

    def install(self, spec, prefix):
        make("install", *self.options)
