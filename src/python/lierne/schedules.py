"""Schedules: what a rank launches in a step, as data: isolated, checked, and run.

    schedule = Schedule(rank)
    schedule.add_group(Group("llm", range(8), uid=1))
    schedule.add_operation(Operation("all_gather", "llm", plan=gather))
    schedule.add_operation(Operation("all_to_all", "llm", tag="ep", plan=tokens))
    with Run(context, isolate(schedule)) as run:         # once, on all ranks
        run.begin([shard, to_experts])                   # every step
        parameters, at_experts = run.wait()

Recording, passes, checks and texts need no context and no other rank. The C headers
lierne/schedule.h and lierne/group.h are the manual; docs/schedules.md says why. With tensors:
lierne.torch.schedules; of a torch.fx graph: lierne.torch.fx."""
from __future__ import annotations

import dataclasses
import operator
import types
import typing

from lierne._arrays import dtype_number, dtype_of_number
from lierne._library import ERRORS, Error, Spec, arguments, call, ffi, handle, lib, make, not_copied, text
from lierne._types import Priority
from lierne.plan import direction_of

if typing.TYPE_CHECKING:
    from lierne.context import Context

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "barrier", "send",
         "recv", "plan", "local")
_PRIORITIES = ("normal", "high")
_DIRECTIONS = ("forward", "adjoint")
_INVALID = ERRORS[lib.LIERNE_ERR_INVALID]
_BUSY = ERRORS[lib.LIERNE_ERR_BUSY]


def _one_of(what, name, names):
    if not isinstance(name, str) or name not in names:
        raise ValueError(f"{what} is {name!r}, must be one of {', '.join(names)}")
    return names.index(name)


@dataclasses.dataclass(frozen=True)
class Group:
    """A group of a schedule: a queue, known by its uid. uid: any number from 1 on that means the same
    group on every rank; 0 for one that a pass made and nobody has created yet."""
    name: str
    ranks: typing.Tuple[int, ...]  # of the world, in the group's order
    uid: int
    priority: str = "normal"  # or "high"
    purpose: str = ""  # of a group that a pass made
    source: int = 0  # the uid that it was isolated from


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation of a schedule. kind: one of KINDS; group: the name of a group of the schedule, or
    None for a "local" one. The other fields are those of lierne_operation_spec."""
    kind: str
    group: typing.Optional[str] = None
    tag: str = ""  # the purpose of its traffic, as "ep"
    after: typing.Tuple[int, ...] = ()  # indices of earlier operations that must be complete
    dtype: typing.Any = None  # this and count are compared between ranks; a plan gives its own
    count: int = 0
    root: int = 0  # of a broadcast: a rank of the world
    peer: int = 0  # of "send" and "recv"
    plan: typing.Any = None  # a Plan, which a Run executes
    direction: str = "forward"
    held: bool = False  # it does its part only after Run.resume
    name: str = ""  # what the program calls it; messages show it


@dataclasses.dataclass(frozen=True)
class Order:
    """What check() found. cycle: the shortest cycle of launches, as text, or ""."""
    safe_serialised: bool  # complete even if each rank waits for each operation before the next
    safe_concurrent: bool  # complete if the queues are independent
    ngroups: int  # that carry operations
    ncreated: int  # of them, made by passes: communicators to create
    cycle: str


@dataclasses.dataclass(frozen=True)
class Event:
    """An operation of a run's last execution. Times are seconds of a monotonic clock; 0: not yet."""
    queue: int
    uid: int
    bytes: int
    issued: float
    begun: float
    resumed: float
    ended: float


def _group_of(out):
    return Group(text(out.name), tuple(out.ranks[0:out.nranks]), out.uid, _PRIORITIES[out.priority],
                 text(out.purpose), out.source)


class Schedule:
    """The groups and operations of one rank, in the order in which it launches them. Recording ends
    at the first pass, check, text or run. Raises errors.InvalidError and others as
    lierne_schedule_add_group and lierne_schedule_add_operation."""

    def __init__(self, rank: int, groups: typing.Iterable[typing.Union[Group, ContextGroup]] = (),
                 operations: typing.Iterable[Operation] = ()) -> None:
        self._handle = ffi.gc(make("lierne_schedule", lib.lierne_schedule_create, rank),
                              lib.lierne_schedule_destroy)
        self._plans, self._names = {}, []  # by operation; of groups
        for group in groups:
            self.add_group(group)
        for entry in operations:
            self.add_operation(entry)

    __copy__ = __reduce_ex__ = not_copied

    @classmethod
    def _made(cls, handle, plans):
        schedule = cls.__new__(cls)
        schedule._handle = ffi.gc(handle, lib.lierne_schedule_destroy)
        schedule._plans = plans
        schedule._names = [group.name for group in schedule.groups]
        return schedule

    def add_group(self, group: typing.Union[Group, ContextGroup]) -> str:
        """Adds a Group, or a ContextGroup, and returns its name."""
        ranks = [operator.index(rank) for rank in group.ranks]
        spec = Spec("lierne_schedule_group_spec", name=group.name, uid=group.uid, ranks=ranks,
                    nranks=len(ranks), priority=_one_of("priority", group.priority, _PRIORITIES))
        call(lib.lierne_schedule_add_group, ffi.new("int *"), self._handle, spec.at)
        self._names.append(group.name)
        return group.name

    def add_operation(self, entry: Operation) -> int:
        """Adds an Operation behind the others and returns its index."""
        index, plan, after = ffi.new("int *"), entry.plan, list(entry.after)
        fields = dataclasses.asdict(dataclasses.replace(entry, plan=None))
        fields.update(kind=_one_of("kind", entry.kind, KINDS), group=self._index(entry.group),
                      dtype=None if entry.dtype is None else dtype_number(entry.dtype), after=after,
                      nafter=len(after), direction=direction_of(entry.direction),
                      plan=None if plan is None else handle(plan, "plan"))
        spec = Spec("lierne_operation_spec", **fields)
        call(lib.lierne_schedule_add_operation, index, self._handle, spec.at)
        if plan is not None:
            self._plans[index[0]] = plan
        return index[0]

    def _index(self, name):
        if name is None:
            return -1
        if name not in self._names:
            raise ValueError(f"the schedule has no group {name!r} (groups: {', '.join(self._names)})")
        return self._names.index(name)

    def _frozen(self):
        call(lib.lierne_schedule_freeze, self._handle)
        return self._handle

    @property
    def rank(self) -> int:
        return lib.lierne_schedule_get_rank(self._handle)

    @property
    def groups(self) -> typing.List[Group]:
        """The Groups, those that passes made among them."""
        out = Spec("lierne_schedule_group")
        found = []
        for i in range(lib.lierne_schedule_get_ngroups(self._handle)):
            call(lib.lierne_schedule_get_group, out.at, self._handle, i)
            found.append(_group_of(out.at))
        return found

    def __len__(self) -> int:
        return lib.lierne_schedule_get_noperations(self._handle)

    @property
    def operations(self) -> typing.List[Operation]:
        """The Operations, with the groups that passes gave them."""
        return [self._operation(i) for i in range(len(self))]

    def _operation(self, i):
        out = Spec("lierne_operation_spec").at
        call(lib.lierne_schedule_get_operation, out, self._handle, i)
        return Operation(KINDS[out.kind], self._names[out.group] if out.group >= 0 else None,
                         text(out.tag), tuple(out.after[0:out.nafter]), dtype_of_number(out.dtype),
                         out.count, out.root, out.peer, self._plans.get(i), _DIRECTIONS[out.direction],
                         bool(out.held), text(out.name))

    def text(self) -> str:
        """As JSON (docs/schedules.md), which read() and `lierne schedule` read. Plans are numbers."""
        out = make("char", lib.lierne_schedule_serialize, self._frozen())
        try:
            return text(out)
        finally:
            lib.lierne_text_destroy(out)

    def __repr__(self) -> str:
        return f"<schedule of rank {self.rank}: {len(self)} operations, {len(self.groups)} groups>"


def read(source: str) -> typing.List[Schedule]:
    """The Schedules of a text: of one, or of {"schedules": [...]}. They have no plans. Raises
    errors.InvalidError and errors.SyntaxError, with line and column."""
    out, n, data = ffi.new("lierne_schedule ***"), ffi.new("int *"), source.encode()
    call(lib.lierne_schedule_deserialize, out, n, data, len(data))
    found = [Schedule._made(out[0][i], {}) for i in range(n[0])]
    for i in range(n[0]):
        out[0][i] = ffi.NULL  # each is its own owner now
    lib.lierne_schedule_destroy_all(out[0], n[0])
    return found


def isolate(schedule: Schedule, purpose: str = "ep", kinds: typing.Sequence[str] = ("all_to_all",),
            priority: Priority = "high", any_tag: bool = False, singletons: bool = False,
            also_alone: bool = False) -> Schedule:
    """The Schedule in which operations of these kinds and the tag `purpose` have groups of their own
    wherever their group carries anything else.

    any_tag: the kind alone selects. singletons: groups of one rank, too. also_alone: also where a
    group carries nothing else. A pure function: a Run creates the groups."""
    bits = sum(1 << _one_of("a kind", kind, KINDS) for kind in dict.fromkeys(kinds))
    spec = Spec("lierne_isolation_spec", purpose=purpose, kinds=bits,
                priority=_one_of("priority", priority, _PRIORITIES), any_tag=bool(any_tag),
                singletons=bool(singletons), also_alone=bool(also_alone))
    made = make("lierne_schedule", lib.lierne_schedule_isolate, _schedule(schedule), spec.at)
    return type(schedule)._made(made, schedule._plans)


def _schedule(schedule):
    if not isinstance(schedule, Schedule):
        raise TypeError(f"{schedule!r} is no schedule of lierne")
    return schedule._frozen()


def check(schedules: typing.Sequence[Schedule]) -> Order:
    """The Order of the schedules of several ranks, compared with each other; schedules of some ranks
    may be absent. Raises errors.MismatchError where ranks disagree: it names rank, operation, group,
    field and both values. A launch order that closes a cycle is no error here."""
    handles = [_schedule(schedule) for schedule in schedules]
    order, cycle = Spec("lierne_schedule_order"), ffi.new("char[]", 1024)
    call(lib.lierne_schedule_check, order.at, cycle, len(cycle),
         ffi.new("const lierne_schedule *[]", handles), len(handles))
    return Order(bool(order.at.safe_serialised), bool(order.at.safe_concurrent), order.at.ngroups,
                 order.at.ncreated, text(cycle))


def launch_order(schedules: typing.Sequence[Schedule], concurrent: bool = False) -> Order:
    """As check, but raises errors.InvalidError where the ranks would wait for each other for ever: it
    names ranks, operations and groups. concurrent: queues are independent, so that only the order
    within a queue and dependencies count."""
    order = check(schedules)
    if not (order.safe_concurrent if concurrent else order.safe_serialised):
        how = " where operations are launched one by one" if order.safe_concurrent else ""
        raise _INVALID(f"launch_order: the launch order closes a cycle{how}: {order.cycle}")
    return order


def _destroy(owner, function):
    """Ends what has a group. After any error but BusyError it is gone as well, or goes with its context."""
    if owner._handle is not None and owner.context._handle is not None:
        try:
            owner.context._call(function, owner._handle)
        except _BUSY:
            raise
        except Error:
            owner._handle = None
            raise
    owner._handle = None


class ContextGroup:
    """A group of a context, of which this rank is a member; made by create_groups. Destroyed with its
    context, or by close()."""

    def __init__(self, context: Context, handle: typing.Any) -> None:
        self.context, self._handle = context, handle

    __copy__ = __reduce_ex__ = not_copied

    @property
    def name(self) -> str:
        """For schedules: the purpose and the uid."""
        return f"{self.purpose}#{self.uid}"

    @property
    def ranks(self) -> typing.Tuple[int, ...]:
        """The ranks of the world, in the group's order."""
        own = handle(self, "group")
        return tuple(lib.lierne_group_get_ranks(own)[0:lib.lierne_group_get_size(own)])

    @property
    def rank(self) -> int:
        """This rank's place among them."""
        return lib.lierne_group_get_rank(handle(self, "group"))

    @property
    def purpose(self) -> str:
        return text(lib.lierne_group_get_purpose(handle(self, "group")))

    @property
    def priority(self) -> str:
        return _PRIORITIES[lib.lierne_group_get_priority(handle(self, "group"))]

    @property
    def uid(self) -> int:
        """Equal on all members, and never that of another group of the context."""
        return lib.lierne_group_get_uid(handle(self, "group"))

    def close(self) -> None:
        """Destroys the group. Collective over its members where transports have communicators."""
        _destroy(self, lib.lierne_group_destroy)


def create_groups(context: Context,
                  *specs: typing.Tuple[typing.Any, ...]) -> typing.List[typing.Optional[ContextGroup]]:
    """This rank's ContextGroup of each spec, None where it is in none. Collective over the context: all
    ranks give the same specs, members or not.

    A spec is (purpose, ranks) or (purpose, ranks, priority); ranks is a list of ranks, or a list of
    lists without a rank in common, as Grid.groups gives them. Raises as lierne_group_create_all;
    errors.NoResourceError beyond the context's max_groups."""
    made = [Spec("lierne_group_spec", **_group_fields(*spec)) for spec in specs]
    out = ffi.new("lierne_group *[]", len(made))
    context._call(lib.lierne_group_create_all, out, handle(context, "context"),
                  ffi.new("const lierne_group_spec *[]", [spec.at for spec in made]), len(made))
    return [ContextGroup(context, own) if own else None for own in out]


def _group_fields(purpose, ranks, priority="normal"):
    several = [list(group) for group in (ranks if any(hasattr(r, "__len__") for r in ranks) else [ranks])]
    return {"purpose": purpose, "priority": _one_of("priority", priority, _PRIORITIES),
            "ngroups": len(several), "sizes": [len(group) for group in several],
            "ranks": [rank for group in several for rank in group]}


class Run:
    """A committed schedule, to be executed any number of times. Collective over the context: every rank
    makes it with its own schedule.

    concurrent: a launch order that is safe if queues are concurrent is enough. progress_thread: a
    thread of the run progresses it between begin() and wait(). external: the caller executes the
    operations itself, so that they need no plans; the run compares schedules, and counts and keeps
    groups (created). stream: in a context with memory of a device, the address of a CUDA stream whose work
    comes before the run's (lierne_run_spec in lierne/schedule.h). Raises as lierne_run_create, the same
    error on every rank, before anything is created or moved. Destroyed when it is collected, with its
    context, or by close()."""

    def __init__(self, context: Context, schedule: Schedule, concurrent: bool = False, progress_thread: bool = False,
                 external: bool = False, stream: typing.Optional[int] = None) -> None:
        spec = Spec("lierne_run_spec", concurrent=bool(concurrent), external=bool(external),
                    progress_thread=bool(progress_thread),
                    stream=ffi.cast("void *", 0 if stream is None else operator.index(stream)))
        out = ffi.new("lierne_run **")
        self.context, self.schedule, self._handle = context, schedule, None
        own = schedule._frozen() if isinstance(schedule, Schedule) else ffi.NULL
        handle(context, "context")
        context._call(lib.lierne_run_create, out, context._handle, own, spec.at)
        self._handle, self._filled = out[0], None
        entries = schedule.operations
        self._plans = {i: (plan, direction_of(entries[i].direction))
                       for i, plan in schedule._plans.items()}

    __copy__ = __reduce_ex__ = not_copied

    def _call(self, function, *arguments):
        """Frees nothing that was collected: while the run is begun, nothing may be destroyed."""
        with self.context._lock:
            self.context._check_usable()
            call(function, *arguments)

    @property
    def created(self) -> typing.List[Group]:
        """The Groups that making this run created, of all ranks: the same list on every rank."""
        out, own = Spec("lierne_schedule_group"), handle(self, "run")
        found = []
        for i in range(lib.lierne_run_get_ncreated(own)):
            call(lib.lierne_run_get_created, out.at, own, i)
            found.append(_group_of(out.at))
        return found

    def _buffers(self, plan, direction, data, out):
        """(the result, pointers to out and in, what keeps them alive)"""
        return plan._buffers(direction, data, out)

    def begin(self, data: typing.Iterable[typing.Any],
              outs: typing.Optional[typing.Iterable[typing.Any]] = None) -> None:
        """Starts all operations. data and outs have an entry per operation, None for those without a
        plan; without outs, results are new arrays. The buffers are borrowed until wait()."""
        n = len(self.schedule)
        data = _sized("data", data, n)
        outs = [None] * n if outs is None else _sized("outs", outs, n)
        filled = [(None, ffi.NULL, ffi.NULL, None)] * n
        for i, (plan, direction) in self._plans.items():
            filled[i] = self._buffers(plan, direction, data[i], outs[i])
        self._launch(filled)
        self._filled = filled

    def _launch(self, filled):
        targets = ffi.new("void *[]", [entry[1] for entry in filled])
        sources = ffi.new("const void *[]", [entry[2] for entry in filled])
        self._call(lib.lierne_run_begin, handle(self, "run"), targets, sources)

    def resume(self, index: int) -> None:
        """Lets a held operation do its part, or says that a local one is complete."""
        self._call(lib.lierne_run_resume, handle(self, "run"), index)

    def test(self) -> bool:
        """Progresses the run; whether wait() would return at once."""
        done = ffi.new("int *")
        self._call(lib.lierne_run_test, done, handle(self, "run"))
        return bool(done[0])

    def wait(self) -> typing.List[typing.Any]:
        """Waits until all operations of this rank are complete, and returns the results, one per
        operation, None where there is no plan. Raises as lierne_run_end: errors.TimeoutError names the
        operation that is held, and the one behind it."""
        self._end()
        filled, self._filled = self._filled, None
        return [self._result(i, entry[0]) for i, entry in enumerate(filled)]

    def _end(self):
        self._call(lib.lierne_run_end, handle(self, "run"))

    @classmethod
    def once(cls, context: Context, schedule: Schedule, data: typing.Iterable[typing.Any], *,
             concurrent: bool = False, progress_thread: bool = False, external: bool = False,
             stream: typing.Optional[int] = None) -> typing.List[typing.Any]:
        """As run()."""
        with cls(**arguments(locals(), "cls", "data")) as own:
            own.begin(data)
            return own.wait()

    def _result(self, i, out):
        plan, direction = self._plans.get(i, (None, None))
        return plan._shared_array(direction) if out is None and plan else out

    def event(self, index: int) -> Event:
        """The Event of an operation of the last execution, also while it goes on."""
        out = Spec("lierne_run_event").at
        call(lib.lierne_run_get_event, out, handle(self, "run"), index)
        return Event(*(getattr(out, field.name) for field in dataclasses.fields(Event)))

    def trace(self) -> str:
        """The last execution of this rank as events of the Chrome trace format: a text, which trace()
        joins with those of other ranks."""
        out = make("char", lib.lierne_run_get_trace, handle(self, "run"))
        try:
            return text(out)
        finally:
            lib.lierne_text_destroy(out)

    def close(self) -> None:
        """Destroys the run, and the groups that no other run uses. Raises errors.BusyError between
        begin() and wait()."""
        _destroy(self, lib.lierne_run_destroy)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.context._discard(lib.lierne_run_destroy, self._handle)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: typing.Optional[typing.Type[BaseException]], error: typing.Optional[BaseException],
                 trace: typing.Optional[types.TracebackType]) -> None:
        if kind is None:  # else it may be begun, and goes with its context
            self.close()


def _sized(what, values, n):
    """The entries as a list, if there are n."""
    values = list(values)
    if len(values) != n:
        raise ValueError(f"{what} has {len(values)} entries, must have {n}: one per operation")
    return values


def run(context: Context, schedule: Schedule, data: typing.Iterable[typing.Any], *, concurrent: bool = False,
        progress_thread: bool = False, external: bool = False,
        stream: typing.Optional[int] = None) -> typing.List[typing.Any]:
    """Commits a schedule, executes it once, and returns its results. Collective; options as Run."""
    return Run.once(**arguments(locals()))


def trace(texts: typing.Iterable[str]) -> str:
    """The trace of all ranks, of each rank's Run.trace(): JSON that opens in Perfetto and that `lierne
    draw timeline` draws."""
    return "[\n" + ",\n".join(texts) + "\n]\n"
