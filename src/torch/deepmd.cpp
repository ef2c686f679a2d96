/* deepmd-kit's operators on PyTorch's dispatcher, over lierne's plans: the counterpart in C++ of
 * lierne/torch/deepmd.py for programs without Python. The Python module serves what this file
 * cannot, contexts whose data moves over torch.distributed.
 *
 * deepmd::border_op writes its ghosts into the caller's tensor, unseen by autograd, and keeps its
 * plan for the backward: LAMMPS may have other lists by then. Those of deepmd_export call each
 * other through the dispatcher in their backward, so that a graph which torch.export traces has
 * both. */
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>

#include "lierne/collective.h"
#include "lierne/halo.h"
#include "lierne/node.h"
#include "lierne/torch.h"

/* Of liblierne, for its own libraries (src/base/base.h). */
extern "C" lierne_status lierne_fail(lierne_status status, const char *format, ...);

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

[[noreturn]] void raise(lierne_status status) {
    std::string text = lierne_last_error();
    TORCH_CHECK_VALUE(status != LIERNE_ERR_INVALID, text);
    TORCH_CHECK_INDEX(status != LIERNE_ERR_INDEX_RANGE, text);
    TORCH_CHECK(false, text);
}

void check(lierne_status status) {
    if (status != LIERNE_OK)
        raise(status);
}

struct Communicator;

/* A plan of a communicator; its context has it from when the number is released. */
struct Plan : torch::CustomClassHolder {
    explicit Plan(std::shared_ptr<Communicator> owner) : owner(std::move(owner)) {
    }
    ~Plan() override;
    std::shared_ptr<Communicator> owner;
    lierne_plan *plan = nullptr;
};
using PlanPtr = c10::intrusive_ptr<Plan>;

struct Lists {
    int64_t nlocal, nghost;
    std::vector<int> sendproc, recvproc;
    std::vector<int64_t> recvnum;
    std::vector<std::vector<int64_t>> rows;
    bool operator==(const Lists &) const = default;
};

/* The dtype, and the elements of a row or of the tensor. */
using Kind = std::pair<at::ScalarType, int64_t>;

struct Communicator {
    explicit Communicator(lierne_context *context = nullptr) : context(context) {
    }
    lierne_context *context; /* NULL: released */
    bool alone = false;
    Lists lists{};
    std::map<Kind, PlanPtr> borders, minima;
    PlanPtr agreement;
};
using CommunicatorPtr = std::shared_ptr<Communicator>;

Plan::~Plan() {
    if (owner->context)
        lierne_plan_destroy(plan);
}

/* Never destroyed: operators may be called while the process ends. */
struct Registry {
    std::mutex mutex;
    std::map<int64_t, CommunicatorPtr> numbers;
};
Registry &registry() {
    static auto *all = new Registry;
    return *all;
}

CommunicatorPtr create_alone() {
    auto made = std::make_shared<Communicator>();
    check(lierne_context_create_self(&made->context, nullptr));
    made->alone = true;
    return made;
}

CommunicatorPtr communicator_of(const Tensor &tensor) {
    int64_t number = tensor.numel() ? tensor.reshape(-1)[0].item<int64_t>() : 0;
    if (number == 0) {
        static auto *alone = new CommunicatorPtr(create_alone());
        return *alone;
    }
    std::lock_guard<std::mutex> lock(registry().mutex);
    auto found = registry().numbers.find(number);
    TORCH_CHECK_VALUE(
        found != registry().numbers.end(), "border_op: the communicator is ", number,
        ", which is no context: bind it with lierne_torch_bind (in Python: pass "
        "lierne.torch.deepmd.communicator(context), made after the library was loaded), or pass "
        "zeros for this rank alone");
    return found->second;
}

lierne_dtype dtype_of(at::ScalarType type) {
    switch (type) {
    case at::kDouble:
        return LIERNE_DTYPE_F64;
    case at::kFloat:
        return LIERNE_DTYPE_F32;
    case at::kBFloat16:
        return LIERNE_DTYPE_BF16;
    case at::kHalf:
        return LIERNE_DTYPE_F16;
    case at::kLong:
        return LIERNE_DTYPE_I64;
    case at::kInt:
        return LIERNE_DTYPE_I32;
    case at::kChar:
        return LIERNE_DTYPE_I8;
    case at::kByte:
        return LIERNE_DTYPE_U8;
    default:
        TORCH_CHECK_TYPE(false, "border_op: tensors of dtype ", type, " cannot be moved");
    }
}

template <typename T> std::vector<T> numbers(const Tensor &tensor) {
    Tensor list = tensor.to(at::kCPU, at::kLong).contiguous();
    const int64_t *first = list.const_data_ptr<int64_t>();
    return std::vector<T>(first, first + list.numel());
}

/* What border operators are called with, in the order of their schema. */
using Arguments = at::TensorList;
enum {
    SENDLIST,
    SENDPROC,
    RECVPROC,
    SENDNUM,
    RECVNUM,
    TENSOR,
    COMMUNICATOR,
    NLOCAL,
    NGHOST,
    NARGUMENTS
};

/* The rows of each swap stand in LAMMPS' arrays of int, whose addresses are given. */
Lists lists_of(Arguments given) {
    Lists lists{given[NLOCAL].item<int64_t>(),    given[NGHOST].item<int64_t>(),
                numbers<int>(given[SENDPROC]),    numbers<int>(given[RECVPROC]),
                numbers<int64_t>(given[RECVNUM]), {}};
    auto addresses = numbers<int64_t>(given[SENDLIST]), counts = numbers<int64_t>(given[SENDNUM]);
    size_t n = addresses.size();
    TORCH_CHECK_VALUE(counts.size() == n && lists.sendproc.size() == n &&
                          lists.recvproc.size() == n && lists.recvnum.size() == n,
                      "border_op: the lists of swaps have ", n, ", ", lists.sendproc.size(), ", ",
                      lists.recvproc.size(), ", ", counts.size(), " and ", lists.recvnum.size(),
                      " entries, must have the same number");
    for (size_t s = 0; s < n; s++) {
        auto *rows = reinterpret_cast<const int *>(addresses[s]);
        TORCH_CHECK_VALUE(counts[s] >= 0, "border_op: swap ", s, " sends ", counts[s], " rows");
        lists.rows.emplace_back(rows, rows + counts[s]);
    }
    return lists;
}

/* Calls are ordered with the work that torch has enqueued. Its default stream is CUDA's legacy one,
 * which lierne wants by that name (cudaStreamLegacy). */
void *stream_of(const Tensor &tensor) {
    if (tensor.is_cpu())
        return nullptr;
    c10::impl::VirtualGuardImpl guard(tensor.device().type());
    void *handle = guard.getStream(tensor.device()).native_handle();
    return handle ? handle : reinterpret_cast<void *>(1);
}

/* Computes a direction of a plan. */
void run(const Plan &plan, bool adjoint, const Tensor &out, const Tensor &in) {
    TORCH_CHECK_VALUE(plan.owner->context,
                      "border_op: the number of the communicator was released");
    auto *function = adjoint ? lierne_plan_adjoint : lierne_plan_forward;
    check(function(plan.plan, out.mutable_data_ptr(), in.const_data_ptr(), stream_of(in)));
}

Tensor moved(const Plan &plan, bool adjoint, const Tensor &tensor) {
    Tensor in = (plan.owner->alone ? tensor.cpu() : tensor).contiguous();
    Tensor out = at::empty_like(in);
    run(plan, adjoint, out, in);
    return out.to(tensor.device());
}

PlanPtr reduction_plan(const CommunicatorPtr &communicator, Kind kind, lierne_reduction reduction) {
    lierne_all_reduce_spec spec{};
    spec.size = sizeof spec;
    spec.count = kind.second, spec.dtype = dtype_of(kind.first), spec.reduction = reduction;
    auto made = c10::make_intrusive<Plan>(communicator);
    check(lierne_plan_create_all_reduce(&made->plan, communicator->context, &spec));
    return made;
}

/* The largest number of all ranks. */
int largest(const CommunicatorPtr &communicator, int number, at::Device device) {
    if (communicator->alone)
        return number;
    if (!communicator->agreement)
        communicator->agreement = reduction_plan(communicator, {at::kInt, 1}, LIERNE_REDUCTION_MAX);
    Tensor mine = at::full({1}, number, at::TensorOptions(device).dtype(at::kInt));
    return moved(*communicator->agreement, false, mine).item<int>();
}

PlanPtr halo_plan(const CommunicatorPtr &communicator, Kind kind) {
    const Lists &lists = communicator->lists;
    std::vector<int64_t> sendnum;
    std::vector<const int64_t *> sendlist;
    for (auto &rows : lists.rows) {
        sendnum.push_back(static_cast<int64_t>(rows.size()));
        sendlist.push_back(rows.data());
    }
    lierne_halo_spec spec{};
    spec.size = sizeof spec;
    spec.nlocal = lists.nlocal, spec.nghost = lists.nghost,
    spec.nswap = static_cast<int>(sendnum.size());
    spec.sendproc = lists.sendproc.data(), spec.recvproc = lists.recvproc.data();
    spec.sendnum = sendnum.data(), spec.recvnum = lists.recvnum.data(),
    spec.sendlist = sendlist.data();
    spec.dtype = dtype_of(kind.first), spec.width = kind.second;
    auto made = c10::make_intrusive<Plan>(communicator);
    check(lierne_plan_create_halo(&made->plan, communicator->context, &spec));
    return made;
}

/* The plan of the lists; that of the latest ones is kept, for each dtype and width. */
PlanPtr border_plan(Arguments given) {
    auto communicator = communicator_of(given[COMMUNICATOR]);
    Lists lists = lists_of(given);
    const Tensor &features = given[TENSOR];
    TORCH_CHECK_VALUE(features.dim() > 0 && features.size(0) == lists.nlocal + lists.nghost,
                      "border_op: the tensor has shape ", features.sizes(), ", must have ",
                      lists.nlocal, " + ", lists.nghost, " rows");
    Kind kind{features.scalar_type(), c10::multiply_integers(features.sizes().slice(1))};
    enum { NOTHING, KIND, LISTS } mine = NOTHING;
    if (communicator->lists != lists)
        mine = LISTS;
    else if (!communicator->borders.count(kind))
        mine = KIND;
    int news = largest(communicator, mine, communicator->alone ? at::kCPU : features.device());
    if (news == LISTS) {
        communicator->borders.clear();
        communicator->lists = std::move(lists);
    }
    if (news != NOTHING)
        communicator->borders[kind] = halo_plan(communicator, kind);
    return communicator->borders[kind];
}

/* A plan in a direction, whose derivative is the other one. */
template <bool adjoint> struct Move : Function<Move<adjoint>> {
    static Tensor forward(AutogradContext *ctx, const Tensor &tensor, PlanPtr plan) {
        ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
        return moved(*plan, adjoint, tensor);
    }
    static variable_list backward(AutogradContext *ctx, variable_list gradients) {
        auto plan = c10::static_intrusive_pointer_cast<Plan>(ctx->saved_data["plan"].toCapsule());
        return {Move<!adjoint>::apply(gradients[0], plan), Tensor()};
    }
};

/* Rows that it writes have no gradient. */
struct Border : Function<Border> {
    static Tensor forward(AutogradContext *ctx, const Tensor &features, PlanPtr plan,
                          int64_t nlocal) {
        ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
        if (features.is_contiguous() && (features.is_cpu() || !plan->owner->alone)) {
            run(*plan, false, features, features);
            return features;
        }
        int64_t nghost = features.size(0) - nlocal;
        Tensor ghosts = moved(*plan, false, features).narrow(0, nlocal, nghost);
        features.variable_data().narrow(0, nlocal, nghost).copy_(ghosts);
        return features;
    }
    static variable_list backward(AutogradContext *ctx, variable_list gradients) {
        auto plan = c10::static_intrusive_pointer_cast<Plan>(ctx->saved_data["plan"].toCapsule());
        return {Move<true>::apply(gradients[0], plan), Tensor(), Tensor()};
    }
};

std::vector<Tensor> border_op(Arguments given) {
    return {Border::apply(given[TENSOR], border_plan(given), given[NLOCAL].item<int64_t>())};
}

Tensor border_op_backward(Arguments given) {
    return Move<true>::apply(given[TENSOR], border_plan(given));
}

template <bool adjoint> Tensor border_export(Arguments given) {
    return moved(*border_plan(given), adjoint, given[TENSOR]);
}

Tensor allreduce_min_int(const Tensor &value, const Tensor &tensor) {
    auto communicator = communicator_of(tensor);
    if (communicator->alone)
        return value.clone(at::MemoryFormat::Contiguous);
    Kind kind{value.scalar_type(), value.numel()};
    auto &plan = communicator->minima[kind];
    if (!plan)
        plan = reduction_plan(communicator, kind, LIERNE_REDUCTION_MIN);
    return moved(*plan, false, value);
}

/* An operator of deepmd_export through the dispatcher, where what traces a graph sees it. */
Tensor dispatched(bool adjoint, Arguments given) {
    auto name = adjoint ? "deepmd_export::border_op_backward" : "deepmd_export::border_op";
    torch::jit::Stack stack(given.begin(), given.end());
    c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack);
    return stack[0].toTensor();
}

template <bool adjoint> struct Export : Function<Export<adjoint>> {
    static Tensor forward(AutogradContext *ctx, Arguments given) {
        variable_list lists = given.vec();
        lists[TENSOR] = Tensor();
        ctx->save_for_backward(lists);
        at::AutoDispatchBelowADInplaceOrView below;
        return dispatched(adjoint, given);
    }
    static variable_list backward(AutogradContext *ctx, variable_list gradients) {
        variable_list given = ctx->get_saved_variables(), back(NARGUMENTS);
        given[TENSOR] = gradients[0];
        back[TENSOR] = dispatched(!adjoint, given);
        return back;
    }
};

template <bool adjoint> Tensor differentiable(Arguments given) {
    return Export<adjoint>::apply(given);
}

Tensor new_like(const Tensor &tensor) {
    return at::empty_symint(tensor.sym_sizes(), tensor.options());
}
Tensor border_shape(Arguments given) {
    return new_like(given[TENSOR]);
}
Tensor minimum_shape(const Tensor &value, const Tensor &) {
    return new_like(value);
}

/* A function of all arguments as a kernel. */
template <auto function> void boxed(const c10::OperatorHandle &, torch::jit::Stack *stack) {
    variable_list given;
    for (auto &value : torch::jit::last(*stack, NARGUMENTS))
        given.push_back(value.toTensor());
    torch::jit::drop(*stack, NARGUMENTS);
    torch::jit::push(*stack, function(given));
}
template <auto function> torch::CppFunction kernel() {
    return torch::CppFunction::makeFromBoxedFunction<&boxed<function>>();
}

c10::FunctionSchema schema(const std::string &name, const char *tensor, const char *result) {
    std::string text = name +
                       "(Tensor sendlist, Tensor sendproc, Tensor recvproc, Tensor sendnum, "
                       "Tensor recvnum, Tensor " +
                       tensor + ", Tensor communicator, Tensor nlocal, Tensor nghost) -> " + result;
    return torch::schema(text.c_str());
}

TORCH_LIBRARY_FRAGMENT(deepmd, library) {
    library.def(schema("border_op", "g1", "Tensor[]"));
    library.def(schema("border_op_backward", "grad_g1", "Tensor"));
    library.impl("border_op", c10::DispatchKey::CompositeImplicitAutograd, kernel<border_op>());
    library.impl("border_op_backward", c10::DispatchKey::CompositeImplicitAutograd,
                 kernel<border_op_backward>());
}

TORCH_LIBRARY_FRAGMENT(deepmd_export, library) {
    library.def(schema("border_op", "g1", "Tensor"));
    library.def(schema("border_op_backward", "grad_g1", "Tensor"));
    library.def("allreduce_min_int(Tensor value, Tensor communicator) -> Tensor");
    for (auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
        library.impl("border_op", key, kernel<border_export<false>>());
        library.impl("border_op_backward", key, kernel<border_export<true>>());
        library.impl("allreduce_min_int", key, allreduce_min_int);
    }
    library.impl("border_op", c10::DispatchKey::Autograd, kernel<differentiable<false>>());
    library.impl("border_op_backward", c10::DispatchKey::Autograd, kernel<differentiable<true>>());
    library.impl("border_op", c10::DispatchKey::Meta, kernel<border_shape>());
    library.impl("border_op_backward", c10::DispatchKey::Meta, kernel<border_shape>());
    library.impl("allreduce_min_int", c10::DispatchKey::Meta, minimum_shape);
}

void release(std::map<int64_t, CommunicatorPtr>::iterator entry) {
    Communicator &communicator = *entry->second;
    communicator.borders.clear();
    communicator.minima.clear();
    communicator.agreement.reset();
    communicator.context = nullptr;
    registry().numbers.erase(entry);
}

} // namespace

lierne_status lierne_torch_bind(int64_t number, lierne_context *context) {
    std::lock_guard<std::mutex> lock(registry().mutex);
    if (number == 0)
        return lierne_fail(LIERNE_ERR_INVALID,
                           "lierne_torch_bind: number is 0, which means this rank alone");
    auto found = registry().numbers.find(number);
    if (found == registry().numbers.end()) {
        if (context)
            registry().numbers[number] = std::make_shared<Communicator>(context);
    } else if (!context) {
        release(found);
    } else if (found->second->context != context) {
        return lierne_fail(
            LIERNE_ERR_INVALID,
            "lierne_torch_bind: number %lld is bound to another context: release it first",
            static_cast<long long>(number));
    }
    return LIERNE_OK;
}
