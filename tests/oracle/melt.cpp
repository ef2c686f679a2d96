// LAMMPS has no query for its swaps. But it calls a fix for each swap, with the list of rows to
// pack, and then with the rows to unpack: a fix that records its arguments has them all. The values
// themselves name the peers: forward gives the sender, reverse the receiver.
#include "melt.h"

#include "atom.h"
#include "comm.h"
#include "domain.h"
#include "fix.h"
#include "input.h"
#include "lammps.h"

#include <string>

using namespace LAMMPS_NS;

namespace {

// Older versions of LAMMPS have functions of their own for fixes, newer ones one name for all.
template <class C> auto forward(C *comm, Fix *fix, int) -> decltype(comm->forward_comm_fix(fix)) {
    comm->forward_comm_fix(fix);
}
template <class C> auto forward(C *comm, Fix *fix, long) -> decltype(comm->forward_comm(fix)) {
    comm->forward_comm(fix);
}
template <class C> auto reverse(C *comm, Fix *fix, int) -> decltype(comm->reverse_comm_fix(fix)) {
    comm->reverse_comm_fix(fix);
}
template <class C> auto reverse(C *comm, Fix *fix, long) -> decltype(comm->reverse_comm(fix)) {
    comm->reverse_comm(fix);
}

class Spy : public Fix {
  public:
    melt_swaps *swaps = nullptr; // to write down, or
    double *values = nullptr;    // to communicate

    Spy(LAMMPS *lmp, int narg, char **arg) : Fix(lmp, narg, arg) {
        comm_forward = comm_reverse = 1;
    }
    int setmask() override {
        return 0;
    }

    int pack_forward_comm(int n, int *list, double *buffer, int, int *) override {
        for (int i = 0; i < n; i++) {
            buffer[i] = swaps ? comm->me : values[list[i]];
        }
        if (swaps) {
            int s = swaps->nswap;
            swaps->sendnum[s] = n;
            swaps->sendlist[s] = new int64_t[n + 1];
            for (int i = 0; i < n; i++) {
                swaps->sendlist[s][i] = list[i];
            }
        }
        return n;
    }
    void unpack_forward_comm(int n, int first, double *buffer) override {
        if (swaps) {
            int s = swaps->nswap++;
            swaps->recvnum[s] = n;
            swaps->recvproc[s] = n ? static_cast<int>(buffer[0]) : -1;
        }
        for (int i = 0; i < n && values; i++) {
            values[first + i] = buffer[i];
        }
    }
    // The same swaps from last to first.
    int pack_reverse_comm(int n, int first, double *buffer) override {
        for (int i = 0; i < n; i++) {
            buffer[i] = swaps ? comm->me : values[first + i];
        }
        return n;
    }
    void unpack_reverse_comm(int n, int *list, double *buffer) override {
        if (swaps) {
            swaps->sendproc[--back] = n ? static_cast<int>(buffer[0]) : -1;
        }
        for (int i = 0; i < n && values; i++) {
            values[list[i]] += buffer[i];
        }
    }

    void write_down(melt_swaps *to) {
        swaps = to;
        swaps->nswap = 0;
        forward(comm, this, 0);
        back = swaps->nswap;
        reverse(comm, this, 0);
        swaps = nullptr;
    }
    void communicate(double *with, bool backward) {
        values = with;
        if (backward) {
            reverse(comm, this, 0);
        } else {
            forward(comm, this, 0);
        }
        values = nullptr;
    }

  private:
    int back = 0;
};

} // namespace

struct melt {
    LAMMPS *lammps;
    Spy *spy;
};

static void copy_atoms(LAMMPS *lmp, melt_swaps *to) {
    const Atom *atom = lmp->atom;
    to->nlocal = atom->nlocal;
    to->nghost = atom->nghost;
    int64_t n = to->nlocal + to->nghost;
    to->tag = new int64_t[n + 1];
    to->at = new double[3 * n + 1];
    for (int64_t i = 0; i < n; i++) {
        to->tag[i] = atom->tag[i];
        for (int d = 0; d < 3; d++) {
            to->at[3 * i + d] = atom->x[i][d];
        }
    }
    for (int d = 0; d < 3; d++) {
        to->box[d] = lmp->domain->prd[d];
        to->grid[d] = lmp->comm->procgrid[d];
        to->neighbour[d][0] = lmp->comm->procneigh[d][0];
        to->neighbour[d][1] = lmp->comm->procneigh[d][1];
    }
    to->cutoff = lmp->comm->cutghost[0];
}

melt *melt_open(MPI_Comm comm, const int *cells, double skin, melt_swaps *swaps) try {
    const char *words[] = {"lmp", "-log", "none", "-screen", "none", "-nocite"};
    auto *lmp = new LAMMPS(6, const_cast<char **>(words), comm);
    std::string region = "region box block";
    for (int d = 0; d < 3; d++) {
        region += " 0 " + std::to_string(cells[d]);
    }
    const std::string lines[] = {"units lj",
                                 "atom_style atomic",
                                 "lattice fcc 0.8442",
                                 region,
                                 "create_box 1 box",
                                 "create_atoms 1 box",
                                 "mass 1 1.0",
                                 "displace_atoms all random 0.1 0.1 0.1 4711",
                                 "pair_style lj/cut 2.5",
                                 "pair_coeff 1 1 1.0 1.0 2.5",
                                 "neighbor " + std::to_string(skin) + " bin",
                                 "run 0 post no"};
    for (const std::string &line : lines) {
        lmp->input->one(line.c_str());
    }
    const char *fix[] = {"spy", "all", "spy"};
    auto *spy = new Spy(lmp, 3, const_cast<char **>(fix));
    copy_atoms(lmp, swaps);
    spy->write_down(swaps);
    return new melt{lmp, spy};
} catch (...) {
    return nullptr;
}

void melt_forward(melt *m, double *values) {
    m->spy->communicate(values, false);
}

void melt_reverse(melt *m, double *values) {
    m->spy->communicate(values, true);
}

void melt_close(melt *m, melt_swaps *swaps) {
    for (int s = 0; s < swaps->nswap; s++) {
        delete[] swaps->sendlist[s];
    }
    delete[] swaps->tag;
    delete[] swaps->at;
    delete m->spy;
    delete m->lammps;
    delete m;
}
