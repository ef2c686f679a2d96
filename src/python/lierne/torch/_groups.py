"""Process groups of torch.distributed as groups of schedules, and those that isolation creates.

A process group is known by its object. Its uid must mean the same group on all ranks, so it is a hash
of what all members know: the name, the ranks in their order, and how many groups had both before it.

All ranks of a context create all isolated groups, members or not, because torch counts the calls for
the names of later groups: ranks that skip one would wait for those of another name. An isolated
communicator is not split from another: split ones may share resources, and with them the queue."""
import hashlib
import inspect
import weakref

import torch.distributed as dist

import lierne
from lierne._library import ERRORS, lib
from lierne.schedules import Group, Run

_INVALID, _TRANSPORT, _UNSUPPORTED = (ERRORS[lib.LIERNE_ERR_INVALID], ERRORS[lib.LIERNE_ERR_TRANSPORT],
                                      ERRORS[lib.LIERNE_ERR_UNSUPPORTED])
_known = {}  # of a name and ranks: the group that was seen last, and how many were before it
_groups = weakref.WeakValueDictionary()  # process groups by their uids
_default = None  # the default process group, and contexts by their members for those who name none


def group_of(process_group):
    """The Group of a process group: the same uid on all its ranks, and never that of another one."""
    name, ranks = process_group.group_name, tuple(dist.get_process_group_ranks(process_group))
    last, before = _known.get((name, ranks), (lambda: None, -1))
    if last() is not process_group:
        before += 1
        _known[name, ranks] = weakref.ref(process_group), before
    digest = hashlib.sha256(repr((name, ranks, before)).encode()).digest()
    group = Group(name[:63], ranks, 1 + int.from_bytes(digest[:6], "big"))  # JSON has 53 bits
    _groups[group.uid] = process_group
    return group


def process_group_of(uid):
    """The process group that group_of gave this uid, or None."""
    return _groups.get(uid)


def timeout_of(process_group):
    """How long the calls of a process group may take. None, torch's default: its backend does not say."""
    try:
        return process_group._get_backend(process_group._device_types[0]).options._timeout
    except (AttributeError, IndexError, RuntimeError):
        return None


def default_context(members=None):
    """The context of all ranks, or of these, for those who name none, with the default process group's timeout.
    The first call of a default process group with these members is collective over them."""
    global _default
    world = dist.group.WORLD
    if world is None:
        raise ValueError("torch.distributed is not initialized: call init_process_group first")
    if _default is None or _default[0]() is not world:
        _default = weakref.ref(world), {}
    key = tuple(members or range(dist.get_world_size()))
    if key not in _default[1]:
        limit = timeout_of(world)
        options = {} if limit is None else {"timeout": limit.total_seconds()}
        if len(key) < dist.get_world_size():
            options["members"] = key
        _default[1][key] = lierne.torch.context(**options)
    return _default[1][key]


def _is_alive(process_group):
    """Whether a process group was not destroyed."""
    try:
        return process_group is not None and bool(dist.get_process_group_ranks(process_group))
    except (KeyError, RuntimeError, ValueError):
        return False


class Isolated:
    """The process groups that isolation created for a context: one per source and purpose. An entry
    ends with its source. torch alone keeps the process groups, until they are destroyed."""

    def __init__(self, context):
        self._context, self._entries, self._created = weakref.ref(context), {}, 0

    def commit(self, run, sources):
        """The process groups of the groups that passes made, by their names in the run's schedule.
        Creates those of groups that the run created, in one order on all ranks. Collective over the
        context. run: an external one; sources: process groups of its schedule, by their uids."""
        self._end_unused()
        keep = run.created and Run(self._context(), run.schedule, concurrent=True, external=True)
        for group in run.created:
            source = sources.get(group.source)
            made = self._create(group, source)
            if source is not None:
                self._entries[group.source, group.purpose] = weakref.ref(source), weakref.ref(made), keep
        return {group.name: self._made(group) for group in run.schedule.groups if group.source}

    def _made(self, group):
        if (group.source, group.purpose) not in self._entries:
            raise _INVALID(f"isolate: the context has group {group.name}, but its process group was destroyed, "
                           "or never made (a run over=\"node\"); isolate with a context of its own")
        return self._entries[group.source, group.purpose][1]()

    def _end_unused(self):
        """Destroys the groups whose source was destroyed."""
        for key, (source, made, _) in list(self._entries.items()):
            if not (_is_alive(source()) and _is_alive(made())):
                del self._entries[key]
                if _is_alive(made()):
                    dist.destroy_process_group(made())

    def _create(self, group, source):
        """A process group as its source, over the same ranks; only members know that. Returns None on
        other ranks."""
        self._created += 1
        whole = len(self._context().members) == dist.get_world_size()
        key = f"lierne/isolated/{self._context().members[0]}/{self._created}/{group.name}"
        options = {"group_desc": f"{group.purpose}_extra", "use_local_synchronization": not whole}
        if not whole and dist.get_rank() not in group.ranks:
            return None
        try:
            backend = _agree_backend(key, group, source)
            made = dist.new_group(list(group.ranks), timeout_of(source), backend,
                                  _backend_options(backend, group, timeout_of(source)),
                                  **options, **_order(group.ranks))
        except RuntimeError as error:
            raise _TRANSPORT(f"isolate: the process group {group.name} of ranks {list(group.ranks)} was "
                             f"not created: {error}") from error
        return made if source is not None else None


def _agree_backend(key, group, source):
    """The backend of the source, which its first rank tells those that are no members."""
    store = dist.distributed_c10d._get_default_store()
    if source is None:
        return store.get(key).decode()
    backend = dist.get_backend(source)
    if backend == "undefined":
        backend = dist.get_backend_config(source)
    if dist.get_rank() == group.ranks[0]:
        store.set(key, backend)
    return backend


def _backend_options(backend, group, timeout):
    """Options of the backend that has streams: their priority, and no splitting, which is eager and
    which all ranks of the parent must call. None for other backends."""
    for name in (part.rsplit(":", 1)[-1] for part in backend.split(",")):
        kind = getattr(getattr(dist, f"ProcessGroup{name.upper()}", None), "Options", None)
        if hasattr(kind, "is_high_priority_stream"):
            options = kind()
            options.is_high_priority_stream = group.priority == "high"
            if timeout is not None:
                options._timeout = timeout
            if hasattr(options, "lazy_init"):
                options.lazy_init = True
            return options
    return None


def _order(ranks):
    """What makes new_group keep the order of the ranks, which the splits of an all-to-all follow."""
    if "sort_ranks" in inspect.signature(dist.new_group).parameters:
        return {"sort_ranks": False}
    if list(ranks) != sorted(ranks):
        raise _UNSUPPORTED(f"isolate: ranks {list(ranks)} do not ascend, and new_group of this PyTorch "
                           "sorts them; use one whose new_group has sort_ranks")
    return {}


def isolated_groups(context):
    """The Isolated of a context."""
    if not hasattr(context, "isolated_groups"):
        context.isolated_groups = Isolated(context)
    return context.isolated_groups
