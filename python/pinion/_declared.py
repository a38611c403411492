# SPDX-License-Identifier: BSD-2-Clause
"""What the C headers declare. Written by generate.py: do not edit."""

from ctypes import Structure
from ctypes import c_char
from ctypes import c_char_p
from ctypes import c_double
from ctypes import c_int
from ctypes import c_int64
from ctypes import c_size_t
from ctypes import c_uint
from ctypes import c_uint32
from ctypes import c_uint64
from ctypes import c_uint8
from ctypes import c_void_p
from typing import Any, Dict, List, Tuple

PINION_ACCESS_LOCAL_WRITE = 1
PINION_ACCESS_REMOTE_WRITE = 2
PINION_ACCESS_REMOTE_READ = 4
PINION_ACCESS_REMOTE_ATOMIC = 8
PINION_ACCESS_RELAXED = 1048576
PINION_ACCESS_ALL = 1048591
PINION_PIN_BYPASS = 16777216
PINION_HEAP_ON_NODE = 1
PINION_HEAP_NORMAL_PAGES = 2
PINION_HEAP_HUGE_PREFERRED = 4
PINION_HEAP_HUGE_RESERVED = 8
PINION_HEAP_NOT_IN_CHILDREN = 16
PINION_HEAP_KEEP = 18446744073709551615
PINION_ENDPOINT_SINGLE_THREADED = 1
PINION_ENDPOINT_PROGRESS_CALLER = 2
PINION_ENDPOINT_PROGRESS_THREAD = 4
PINION_ENDPOINT_PROGRESS_AUTO = 8
PINION_COMPLETION_DATA = 1
PINION_COMPLETION_MORE = 2
PINION_MESSAGE_DATA = 1
PINION_MESSAGE_DELIVERY_COMPLETE = 2
PINION_EXPLAIN_BUDGET_FULL = 1
PINION_ADDRESS_BYTES = 528
PINION_FOREVER = 18446744073709551615
PINION_EXPOSURE_KEY_BYTES = 512
PINION_REGISTRAR_READ_ONLY = 1
PINION_CUDA_EXPLAIN_FROM_GPU = 1


class pinion_config_option(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("type", c_char_p),
        ("help", c_char_p),
        ("def", c_char_p),
        ("source", c_char_p),
        ("value", c_char * 512),
    ]


class pinion_device_info(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_char_p),
        ("profile", c_char_p),
        ("emulated", c_int),
        ("pins", c_int),
        ("max_registration_bytes", c_size_t),
        ("max_registrations", c_size_t),
        ("max_pinned_bytes", c_size_t),
        ("pinned_bytes", c_size_t),
        ("dying_bytes", c_size_t),
        ("registrations", c_size_t),
    ]


class pinion_registration_info(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("addr", c_void_p),
        ("len", c_size_t),
        ("access", c_uint),
        ("reserved", c_uint),
        ("local_key", c_uint64),
        ("remote_key", c_uint64),
        ("handle", c_void_p),
    ]


class pinion_pin(Structure):
    __slots__ = ()
    _fields_ = [
        ("addr", c_void_p),
        ("len", c_size_t),
        ("local_key", c_uint64),
        ("remote_key", c_uint64),
        ("handle", c_void_p),
        ("nsegments", c_uint),
        ("reserved", c_uint),
        ("internal", c_void_p * 4),
    ]


class pinion_pin_segment(Structure):
    __slots__ = ()
    _fields_ = [
        ("addr", c_void_p),
        ("len", c_size_t),
        ("local_key", c_uint64),
        ("remote_key", c_uint64),
        ("reserved", c_uint64 * 2),
    ]


class pinion_cache_stats(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("hits", c_uint64),
        ("misses", c_uint64),
        ("misses_new", c_uint64),
        ("misses_partial", c_uint64),
        ("misses_access", c_uint64),
        ("misses_bypass", c_uint64),
        ("waits", c_uint64),
        ("registrations", c_uint64),
        ("registered_bytes", c_uint64),
        ("deregistrations", c_uint64),
        ("deregister_batches", c_uint64),
        ("evictions", c_uint64),
        ("invalidations", c_uint64),
        ("overflows", c_uint64),
        ("refused", c_uint64),
        ("merges", c_uint64),
        ("unkept", c_uint64),
        ("regions", c_size_t),
        ("bytes", c_size_t),
        ("dying_bytes", c_size_t),
        ("peak_bytes", c_size_t),
        ("max_bytes", c_size_t),
        ("max_regions", c_size_t),
    ]


class pinion_heap_attr(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("slab_bytes", c_size_t),
        ("max_bytes", c_size_t),
        ("return_us", c_uint64),
        ("flags", c_uint64),
        ("access", c_uint),
        ("numa_node", c_uint),
    ]


class pinion_heap_region(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("addr", c_void_p),
        ("len", c_size_t),
        ("local_key", c_uint64),
        ("remote_key", c_uint64),
        ("access", c_uint),
        ("reserved", c_uint),
        ("handle", c_void_p),
    ]


class pinion_heap_stats(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("slabs", c_size_t),
        ("slab_bytes", c_size_t),
        ("run_bytes", c_size_t),
        ("registrations", c_uint64),
        ("returned", c_uint64),
    ]


class pinion_helper_stats(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("calls", c_uint64),
        ("lost", c_uint64),
        ("first", c_uint64),
        ("in_time", c_uint64),
        ("late", c_uint64),
        ("registered", c_uint64),
        ("deregistered", c_uint64),
        ("kept", c_uint64),
        ("expired", c_uint64),
        ("in_use", c_uint64),
        ("irregular", c_uint64),
        ("refused", c_uint64),
        ("buffers", c_uint64),
        ("sites", c_uint64),
        ("idle", c_uint64),
        ("members", c_uint64),
        ("held_back", c_uint64),
        ("copied", c_uint64),
        ("aside", c_uint64),
        ("wake_ns", c_uint64),
    ]


class pinion_address(Structure):
    __slots__ = ()
    _fields_ = [
        ("len", c_uint32),
        ("data", c_uint8 * 524),
    ]


class pinion_endpoint_attr(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint64),
        ("progress", c_void_p),
        ("progress_arg", c_void_p),
    ]


class pinion_completion(Structure):
    __slots__ = ()
    _fields_ = [
        ("status", c_int),
        ("flags", c_uint32),
        ("peer", c_void_p),
        ("tag", c_uint64),
        ("len", c_size_t),
        ("user", c_void_p),
        ("message_len", c_size_t),
        ("buf", c_void_p),
        ("data", c_uint32),
        ("data_high", c_uint32),
        ("reserved", c_uint64 * 2),
    ]


class pinion_multi_recv(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("min_bytes", c_size_t),
        ("internal", c_uint),
        ("reserved", c_uint),
    ]


class pinion_message(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint64),
        ("buf", c_void_p),
        ("len", c_size_t),
        ("tag", c_uint64),
        ("ignore", c_uint64),
        ("peer", c_void_p),
        ("user", c_void_p),
        ("multi_recv", c_void_p),
        ("data", c_uint32),
        ("space", c_uint32),
        ("data_high", c_uint32),
        ("reserved", c_uint32),
    ]


class pinion_endpoint_stats(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("sent_eager", c_uint64),
        ("sent_copy", c_uint64),
        ("sent_demand", c_uint64),
        ("sent_cached", c_uint64),
        ("sent_pipeline", c_uint64),
        ("sent_caching_pipeline", c_uint64),
        ("sent_read", c_uint64),
        ("sent_overlapped", c_uint64),
        ("received", c_uint64),
        ("unexpected", c_uint64),
        ("copied_no_budget", c_uint64),
        ("stalls", c_uint64),
        ("explored", c_uint64),
        ("predictions", c_uint64),
        ("prediction_error", c_double),
        ("sent_direct", c_uint64),
        ("max_inject_bytes", c_size_t),
        ("chosen_in_flight", c_uint64),
        ("protocol_changes", c_uint64),
    ]


class pinion_explain_attr(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint64),
        ("len", c_uint64),
        ("reuse", c_uint64),
        ("in_flight", c_uint64),
    ]


class pinion_explanation(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("protocol", c_char_p),
        ("chosen", c_int),
        ("reason", c_char_p),
        ("first_ns", c_double),
        ("later_ns", c_double),
        ("mean_ns", c_double),
    ]


class pinion_exposure_key(Structure):
    __slots__ = ()
    _fields_ = [
        ("len", c_uint32),
        ("data", c_uint8 * 508),
    ]


class pinion_move(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint64),
        ("remote", c_void_p),
        ("offset", c_uint64),
        ("buf", c_void_p),
        ("len", c_size_t),
        ("user", c_void_p),
    ]


class pinion_atomic(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint64),
        ("remote", c_void_p),
        ("offset", c_uint64),
        ("operand", c_uint64),
        ("compare", c_uint64),
        ("result", c_void_p),
        ("user", c_void_p),
    ]


class pinion_registrar_range(Structure):
    __slots__ = ()
    _fields_ = [
        ("addr", c_void_p),
        ("len", c_size_t),
        ("access", c_uint),
        ("status", c_int),
        ("handle", c_void_p),
        ("local_key", c_uint64),
        ("remote_key", c_uint64),
        ("reserved", c_uint64 * 4),
    ]


class pinion_registrar(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint64),
        ("arg", c_void_p),
        ("register_ranges", c_void_p),
        ("deregister_ranges", c_void_p),
        ("max_batch", c_uint),
        ("reserved", c_uint),
        ("max_registration_bytes", c_size_t),
        ("max_registrations", c_size_t),
        ("max_pinned_bytes", c_size_t),
        ("register_ns", c_double),
        ("register_page_ns", c_double),
        ("deregister_ns", c_double),
        ("deregister_page_ns", c_double),
    ]


class pinion_attr(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint64),
        ("options", c_void_p),
        ("registrar", c_void_p),
    ]


class pinion_cuda_copy_attr(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint64),
        ("dst", c_void_p),
        ("src", c_void_p),
        ("bytes", c_size_t),
        ("stream", c_void_p),
        ("default_of", c_void_p),
    ]


class pinion_cuda_stats(Structure):
    __slots__ = ()
    _fields_ = [
        ("size", c_size_t),
        ("driver", c_uint64),
        ("bounced", c_uint64),
        ("registered", c_uint64),
        ("mixed", c_uint64),
        ("bounced_bytes", c_uint64),
        ("registered_bytes", c_uint64),
        ("background_blocks", c_uint64),
        ("background_bytes", c_uint64),
        ("explored", c_uint64),
        ("bounce_bytes", c_size_t),
        ("workers", c_uint),
        ("workers_asleep", c_uint),
    ]


# Name: what the call returns, and the types of its arguments.
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "pinion_config_query": (c_int, [
        c_void_p, c_uint, c_void_p
    ]),
    "pinion_log_last": (c_int, [
        c_void_p, c_size_t
    ]),
    "pinion_device_query": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_device_register": (c_int, [
        c_void_p, c_void_p, c_size_t, c_uint, c_void_p
    ]),
    "pinion_device_deregister": (None, [
        c_void_p
    ]),
    "pinion_registration_query": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_pin": (c_int, [
        c_void_p, c_void_p, c_size_t, c_uint, c_void_p
    ]),
    "pinion_pin_list": (c_int, [
        c_void_p, c_void_p, c_uint, c_uint, c_void_p
    ]),
    "pinion_pin_start": (c_int, [
        c_void_p, c_void_p, c_size_t, c_uint, c_void_p
    ]),
    "pinion_pin_test": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_pin_wait": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_pin_segment": (c_int, [
        c_void_p, c_uint, c_void_p
    ]),
    "pinion_unpin": (None, [
        c_void_p, c_void_p
    ]),
    "pinion_invalidate": (None, [
        c_void_p, c_size_t
    ]),
    "pinion_cache_flush": (c_int, [
        c_void_p
    ]),
    "pinion_cache_revoke": (c_int, [
        c_void_p, c_void_p, c_size_t
    ]),
    "pinion_cache_resize": (c_int, [
        c_void_p, c_size_t, c_size_t
    ]),
    "pinion_cache_query": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_heap_open": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_heap_close": (None, [
        c_void_p
    ]),
    "pinion_heap_malloc": (c_void_p, [
        c_void_p, c_size_t
    ]),
    "pinion_heap_calloc": (c_void_p, [
        c_void_p, c_size_t, c_size_t
    ]),
    "pinion_heap_realloc": (c_void_p, [
        c_void_p, c_void_p, c_size_t
    ]),
    "pinion_heap_aligned": (c_void_p, [
        c_void_p, c_size_t, c_size_t
    ]),
    "pinion_heap_free": (None, [
        c_void_p, c_void_p
    ]),
    "pinion_heap_usable_size": (c_size_t, [
        c_void_p, c_void_p
    ]),
    "pinion_heap_contains": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_heap_find": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_heap_trim": (c_int, [
        c_void_p
    ]),
    "pinion_heap_query": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_site_set": (c_int, [
        c_void_p
    ]),
    "pinion_helper_query": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_endpoint_open": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_endpoint_close": (None, [
        c_void_p
    ]),
    "pinion_endpoint_address": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_peer_add": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_peer_address": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_peer_prefetch": (None, [
        c_void_p, c_size_t
    ]),
    "pinion_send": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_inject": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_recv": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_probe": (c_int, [
        c_void_p, c_void_p, c_void_p, c_void_p
    ]),
    "pinion_recv_unexpected": (c_int, [
        c_void_p, c_void_p, c_void_p, c_void_p
    ]),
    "pinion_cancel": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_recv_cancel": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_test": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_wait": (c_int, [
        c_void_p, c_void_p, c_uint64, c_void_p
    ]),
    "pinion_poll": (c_int, [
        c_void_p, c_void_p, c_size_t, c_uint
    ]),
    "pinion_endpoint_fd": (c_int, [
        c_void_p
    ]),
    "pinion_endpoint_arm": (c_int, [
        c_void_p
    ]),
    "pinion_endpoint_query": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_endpoint_explain": (c_int, [
        c_void_p, c_void_p, c_uint, c_void_p
    ]),
    "pinion_exposure_open": (c_int, [
        c_void_p, c_void_p, c_size_t, c_uint, c_void_p
    ]),
    "pinion_exposure_key": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_exposure_close": (None, [
        c_void_p
    ]),
    "pinion_remote_open": (c_int, [
        c_void_p, c_void_p, c_void_p, c_void_p
    ]),
    "pinion_remote_close": (None, [
        c_void_p
    ]),
    "pinion_put": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_get": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_atomic_fetch_add": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_atomic_swap": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_atomic_compare_swap": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_peer_flush": (c_int, [
        c_void_p, c_void_p, c_void_p, c_void_p
    ]),
    "pinion_peer_fence": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_put_when": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_grant": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_open": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_close": (None, [
        c_void_p
    ]),
    "pinion_version": (c_char_p, [
    ]),
    "pinion_cuda_copy": (c_int, [
        c_void_p, c_void_p, c_void_p, c_size_t, c_void_p
    ]),
    "pinion_cuda_copy_start": (c_int, [
        c_void_p, c_void_p, c_void_p
    ]),
    "pinion_cuda_test": (c_int, [
        c_void_p
    ]),
    "pinion_cuda_wait": (c_int, [
        c_void_p, c_uint64
    ]),
    "pinion_cuda_query": (c_int, [
        c_void_p, c_void_p
    ]),
    "pinion_cuda_explain": (c_int, [
        c_void_p, c_void_p, c_uint, c_void_p
    ]),
}

# What errors of calls mean, from the manual pages.
ERRORS: List[Tuple[str, str, str]] = [
    ("E2BIG",
     'atomic_compare_swap atomic_fetch_add atomic_swap get inject put '
     'recv send',
     'The struct asks for what this version does not know, see '
     'pinion_attr(3).'),
    ("E2BIG",
     'close endpoint_explain endpoint_open heap_open open version',
     'Attr asks for what this version does not know, see pinion_attr(3).'),
    ("E2BIG",
     'cuda_copy_start cuda_explain',
     'Attr sets fields that this library does not know.'),
    ("E2BIG",
     'grant probe put_when recv_unexpected',
     'Message asks for what this version does not know, see '
     'pinion_attr(3).'),
    ("EACCES",
     'atomic_compare_swap atomic_fetch_add atomic_swap get put',
     'The range ends beyond the exposed memory, or the key does not '
     'allow the operation. As a status: the key was revoked, or its '
     'memory released. The peer stays usable.'),
    ("EACCES",
     'cancel inject peer_prefetch recv recv_cancel send test wait',
     "The other side's buffer was unmapped, or its key revoked, on the "
     'way.'),
    ("EACCES",
     'grant put_when',
     'The granted memory was released, or its key revoked, before the '
     'write.'),
    ("EACCES EADDRNOTAVAIL EIO ENOSYS EOPNOTSUPP",
     'close open version',
     'The system or the adapter refuses what the device needs.'),
    ("EACCES EIO ENOENT ENOSPC EPROTO ESRCH EUSERS",
     'endpoint_open',
     "The option helper asks for a helper, and the helpers of the user's"
     ' processes cannot agree about cores: their shared memory cannot be'
     ' used, is of another version or is full, or /proc cannot be read '
     '(logged). With helper=auto there is no helper then, and no error. '
     '-EIO also: the adapter did not bind a memory window. -ENOSPC also:'
     ' the user has no epoll(7) watches left for the progress thread.'),
    ("EADDRNOTAVAIL ENODEV",
     'endpoint_open',
     'The adapter of a further endpoint is gone, or its port has no IP '
     'address any more (verbs, logged); -ENODEV also: sim, by its '
     'script.'),
    ("EAGAIN",
     'close open version',
     'The system gives no further thread or thread key, or no locked '
     'memory (mlockall(2)).'),
    ("EAGAIN",
     'cuda_test',
     'The copy has not ended, or the driver cannot be asked now; the '
     'request stays good.'),
    ("EAGAIN",
     'endpoint_arm',
     'There is something to poll.'),
    ("EAGAIN",
     'endpoint_open',
     'The system gives no further thread, thread key, or locked memory '
     '(mlockall(2)).'),
    ("EAGAIN",
     'heap_open',
     'The system gives no further thread key, or no locked memory '
     '(mlockall(2)).'),
    ("EAGAIN",
     'inject',
     'The peer is not connected yet, its queue is full, or it keeps too '
     'much (unexpected_limit).'),
    ("EAGAIN",
     'pin_segment',
     'The segment is still being registered, see pinion_pin_start(3).'),
    ("EAGAIN",
     'probe',
     'There is none (yet).'),
    ("EAGAIN",
     'test',
     'The request has not ended.'),
    ("EAGAIN EMFILE ENFILE",
     'device_register exposure_open pin pin_list pin_test pin_wait unpin',
     'The device soft needs another io_uring, and the system gives none:'
     ' raise ulimit -n, or ulimit -l after mlockall(2).'),
    ("EAGAIN EMFILE ENFILE",
     'heap_aligned heap_calloc heap_free heap_malloc heap_realloc '
     'heap_usable_size',
     'The device soft needs another io_uring, and the system gives none:'
     ' raise ulimit -n. EAGAIN also: no locked memory after mlockall(2).'),
    ("EAGAIN EOPNOTSUPP EPERM ETIMEDOUT",
     'grant put_when',
     "The system or the adapter refuses what the first operation's "
     'bounce buffers need, as with pinion_put(3).'),
    ("EAGAIN EPERM ETIMEDOUT",
     'atomic_compare_swap atomic_fetch_add atomic_swap get peer_flush '
     'put',
     "The system or the adapter refuses what the first operation's "
     'bounce buffers need: locked memory, an io_uring, memory of a NUMA '
     'node, a memory window.'),
    ("EBUSY",
     'atomic_compare_swap atomic_fetch_add atomic_swap get grant inject '
     'peer_flush put put_when send',
     'The connection to that address belongs to another peer of this '
     'endpoint.'),
    ("EBUSY",
     'cache_revoke',
     'The device cannot revoke keys and the memory is in use; or it is a'
     " heap's (pinion_heap_open(3)), whose blocks share their keys."),
    ("EBUSY",
     'cuda_copy cuda_copy_start cuda_test cuda_wait',
     'A capture forbids the copy, or the stream is being captured and '
     'memory in the range stays registered, by a pin or another copy.'),
    ("ECANCELED",
     'atomic_compare_swap atomic_fetch_add atomic_swap get peer_fence '
     'peer_flush put',
     'As a status: canceled in time; or the device has dropped it '
     'together with an operation before it that was refused. Then start '
     'it again.'),
    ("ECANCELED",
     'cancel inject peer_prefetch recv recv_cancel send test wait',
     'Pinion_cancel() was in time.'),
    ("ECANCELED",
     'grant put_when',
     'Pinion_cancel(3) was in time.'),
    ("ECONNREFUSED",
     'inject recv send',
     'The peer is there but does not let us in: it belongs to another '
     'user, runs another version of pinion (logged), or did not answer '
     'for 5 seconds. Also as a status.'),
    ("ECONNREFUSED EMFILE EPROTO EPROTONOSUPPORT",
     'atomic_compare_swap atomic_fetch_add atomic_swap get peer_fence '
     'peer_flush put',
     'The connection could not be made, or was ended, as with '
     'pinion_send(3). -EMFILE also for want of a descriptor to reach the'
     " peer's memory (logged): raise ulimit -n. Also as a status."),
    ("ECONNREFUSED EMFILE EPROTO EPROTONOSUPPORT",
     'grant put_when',
     'The connection could not be made, or was ended, as with '
     'pinion_send(3). Also as a status.'),
    ("ECONNRESET",
     'atomic_compare_swap atomic_fetch_add atomic_swap get grant '
     'peer_fence peer_flush put put_when',
     'The peer is gone. Also as a status.'),
    ("ECONNRESET",
     'inject recv send',
     'The peer is gone: it has closed its endpoint, its process has '
     'ended, or there is nobody at the address (any more). Also as a '
     'status.'),
    ("EDEADLK",
     'cuda_test cuda_wait',
     'The stream of the request stops its copy.'),
    ("EEXIST EIO",
     'cuda_copy cuda_copy_start cuda_test cuda_wait',
     "Other errors of the driver. A line on standard error has CUDA's "
     'name of the error.'),
    ("EFAULT",
     'atomic_compare_swap atomic_fetch_add atomic_swap get peer_fence '
     'peer_flush put',
     'As a status: buf is not mapped in all its length, or not for '
     'writing (a get), or was unmapped on the way. Found where it is '
     'registered; what is copied instead is read and written as by '
     'memcpy(3), and the program gets SIGSEGV.'),
    ("EFAULT",
     'cancel inject peer_prefetch recv recv_cancel send test wait',
     'Buf is not mapped in all its length, or not for reading (a send) '
     'or writing (a receive), or was unmapped on the way. This is found '
     'where memory is registered. What is copied (short messages, the '
     'first match_bytes of long ones, what goes through bounce buffers) '
     'is read and written as by memcpy(3), and the program gets SIGSEGV.'
     ' The endpoint and the peer stay usable.'),
    ("EFAULT",
     'device_register',
     'Not mapped, or mapped in a way that the device cannot pin (soft: '
     'read-only memory and shared mappings of disk files).'),
    ("EFAULT",
     'exposure_open',
     'The range is not mapped, or in a way that the device cannot pin, '
     'or was released meanwhile.'),
    ("EFAULT",
     'pin pin_list pin_test pin_wait unpin',
     'Not mapped, or mapped in a way that the device cannot pin.'),
    ("EFAULT EREMOTEIO",
     'grant put_when',
     'As with pinion_send(3). A grant of memory that is not mapped is '
     'not sent.'),
    ("EHOSTUNREACH",
     'atomic_compare_swap atomic_fetch_add atomic_swap get grant '
     'peer_fence peer_flush put put_when',
     'No network leads to the peer; or the peer lives, but no connection'
     " joins its first rail and this endpoint's, which these operations "
     'take (logged): name the same rails in the same order on both '
     'sides. Also as a status.'),
    ("EHOSTUNREACH",
     'inject recv send',
     'No network leads to the peer. Also as a status.'),
    ("EINPROGRESS",
     'pin_start pin_test',
     'Segments are still being registered. This is no failure.'),
    ("EINVAL",
     'atomic_compare_swap atomic_fetch_add atomic_swap get peer_fence '
     'peer_flush put',
     'NULL, a size of 0, unknown flags, a range that wraps around, an '
     'atomic that is not aligned, a peer or remote of another endpoint, '
     "or an endpoint that was opened by this process's parent. Or the "
     "peer's address is of another kind of device."),
    ("EINVAL",
     'cache_flush cache_revoke invalidate',
     'Context is NULL; pinion_cache_revoke(): a length of 0 or a range '
     'that wraps around.'),
    ("EINVAL",
     'cache_query cache_resize',
     'NULL; pinion_cache_query() also: a size of 0.'),
    ("EINVAL",
     'cancel peer_prefetch recv_cancel test wait',
     'NULL, a request of another endpoint, or an endpoint that was '
     "opened by this process's parent."),
    ("EINVAL",
     'close open version',
     'Out is NULL, attr or its registrar has unknown flags or a size of '
     '0, a registrar lacks a function, or an option does not parse.'),
    ("EINVAL",
     'config_query',
     'Context or out is NULL, or size is 0.'),
    ("EINVAL",
     'cuda_copy cuda_copy_start cuda_explain cuda_query cuda_test '
     'cuda_wait',
     'NULL; a range that wraps around; unknown flags; a value, stream or'
     ' CUDA context that the driver refuses.'),
    ("EINVAL",
     'device_deregister endpoint_address endpoint_close exposure_close '
     'exposure_key heap_close heap_trim peer_address remote_close',
     'NULL.'),
    ("EINVAL",
     'device_query',
     'Context or info is NULL, size is 0, or the context was opened by '
     "this process's parent."),
    ("EINVAL",
     'device_register',
     'NULL. A length of 0, a range that wraps around or is over the '
     "device's limit, unknown bits in access, or a context that was "
     "opened by this process's parent."),
    ("EINVAL",
     'endpoint_arm endpoint_fd poll',
     "NULL, or an endpoint that was opened by this process's parent; "
     'pinion_poll() also: an element_bytes of 0.'),
    ("EINVAL",
     'endpoint_explain',
     'NULL, a size of 0, unknown flags, or an endpoint that was opened '
     "by this process's parent."),
    ("EINVAL",
     'endpoint_open',
     'NULL. Unknown flags, a size of 0, a context that was opened by '
     "this process's parent; the option segment is no power of two "
     '(logged), or numa_node names no node; more than one flag that says'
     ' who makes progress.'),
    ("EINVAL",
     'endpoint_query',
     'NULL, a size of 0, or an endpoint that was opened by this '
     "process's parent."),
    ("EINVAL",
     'exposure_open',
     'NULL. A range that wraps around, no or unknown access, or an '
     "endpoint that was opened by this process's parent."),
    ("EINVAL",
     'grant put_when',
     'NULL, a size of 0, flags, ignore or multi_recv not 0, a range that'
     ' wraps around, no peer or one of another endpoint, or an endpoint '
     "that was opened by this process's parent. Or the peer's address is"
     ' of another kind of device.'),
    ("EINVAL",
     'heap_aligned heap_calloc heap_free heap_malloc heap_realloc '
     'heap_usable_size',
     'Heap is NULL or size 0; pinion_heap_aligned() also: alignment is '
     'not a power of two, or is too large; pinion_heap_realloc() also: '
     'block is not of this heap. Or the option numa_node names no node.'),
    ("EINVAL",
     'heap_contains heap_find helper_query',
     'NULL, or a size of 0.'),
    ("EINVAL",
     'heap_open',
     'NULL. An attribute that makes no sense, unknown flags, or a size '
     'of 0.'),
    ("EINVAL",
     'heap_query registration_query',
     'NULL. A size of 0.'),
    ("EINVAL",
     'inject recv send',
     'NULL, a request of another endpoint, or an endpoint that was '
     "opened by this process's parent. A size of 0, unknown flags, a "
     'space above 255, a range that wraps around, or a peer of another '
     'endpoint; a send without a peer, or to the address of another kind'
     ' of device; PINION_MESSAGE_DELIVERY_COMPLETE injected; a multi-'
     "receive with a handle, or shorter than this version's."),
    ("EINVAL",
     'log_last',
     'Text is NULL, or bytes is 0.'),
    ("EINVAL",
     'peer_add',
     'NULL. What is no address of an endpoint.'),
    ("EINVAL",
     'pin pin_list unpin',
     'NULL. A length of 0, a range that wraps around, or unknown flags.'),
    ("EINVAL",
     'pin_segment',
     'NULL. There is no such segment.'),
    ("EINVAL",
     'pin_start pin_test pin_wait',
     'NULL; pinion_pin_start() also: a length of 0, a range that wraps '
     'around, or unknown flags; the others also: what is no pin.'),
    ("EINVAL",
     'probe',
     'NULL, a size of 0, unknown flags, a peer of another endpoint, or '
     "an endpoint that was opened by this process's parent."),
    ("EINVAL",
     'recv_unexpected',
     'NULL, a size of 0, unknown flags, a peer of another endpoint, or '
     "an endpoint that was opened by this process's parent. A range that"
     ' wraps around, or multi_recv.'),
    ("EINVAL",
     'remote_open',
     'NULL. No key at all, or a key of another kind of device.'),
    ("EIO",
     'device_register exposure_open heap_aligned heap_calloc heap_free '
     'heap_malloc heap_realloc heap_usable_size pin pin_list pin_test '
     'pin_wait unpin',
     'The adapter did not bind a memory window (verbs with windows=yes, '
     'logged).'),
    ("EIO ENFILE",
     'atomic_compare_swap atomic_fetch_add atomic_swap get peer_flush '
     'put',
     "The system or the adapter refuses what the first operation's "
     'bounce buffers need: locked memory, an io_uring, memory of a NUMA '
     'node, a memory window. As a status: the device soft could not move'
     ' the bytes: io_uring failed, or the system has no file left.'),
    ("EIO ENFILE",
     'cancel inject peer_prefetch recv recv_cancel send test wait',
     'The device soft could not move the bytes: io_uring failed, or the '
     'system has no file left.'),
    ("EIO ENFILE",
     'grant put_when',
     "The system or the adapter refuses what the first operation's "
     'bounce buffers need, as with pinion_put(3). As with '
     'pinion_send(3). A grant of memory that is not mapped is not sent.'),
    ("EIO ENFILE",
     'peer_fence',
     'As a status: the device soft could not move the bytes: io_uring '
     'failed, or the system has no file left.'),
    ("EMFILE",
     'heap_open',
     'Too many heaps; a process can have about 4,000 heaps and caches.'),
    ("EMFILE",
     'inject recv send',
     'There are no descriptors for the connection (logged): raise ulimit'
     ' -n. Once there are some, add the peer again, pinion_peer_add(3). '
     'Also as a status.'),
    ("EMFILE ENFILE",
     'endpoint_open',
     'No descriptors (logged): raise ulimit -n.'),
    ("EMFILE ENFILE ENOSPC",
     'close open version',
     'Too many contexts: a process can have some 4,000 caches and heaps,'
     ' and a context has a cache for each rail; or no descriptor is left'
     ' (ulimit -n): on the device soft a context takes 8, 8 more with '
     'large puts and gets, and one for each peer. -ENOSPC: '
     'fs.epoll.max_user_watches.'),
    ("EMFILE ENFILE ENOSPC",
     'endpoint_fd',
     'No descriptors (logged): raise ulimit -n, or '
     'fs.epoll.max_user_watches for -ENOSPC.'),
    ("EMSGSIZE",
     'cancel peer_prefetch recv recv_cancel send test wait',
     'The message was longer than the buffer, which is full.'),
    ("EMSGSIZE",
     'grant put_when',
     'The grant was shorter than the write.'),
    ("EMSGSIZE",
     'inject',
     'Longer than max_inject_bytes. The message was longer than the '
     'buffer, which is full.'),
    ("ENOBUFS",
     'atomic_compare_swap atomic_fetch_add atomic_swap get peer_flush '
     'put',
     'The first operation found no room for bounce buffers, 260 KiB, on '
     'a device that needs them pinned (soft does only with strict).'),
    ("ENOBUFS",
     'endpoint_open',
     "There is no room in the budget for the endpoint's own buffers: "
     'raise max_bytes or RLIMIT_MEMLOCK.'),
    ("ENOBUFS",
     'exposure_open',
     'No room in the budget, even after giving up all that is not in '
     'use. Exposed memory cannot be copied instead.'),
    ("ENOBUFS",
     'grant put_when',
     'The first operation found no room for bounce buffers, 260 KiB.'),
    ("ENOBUFS",
     'heap_aligned heap_calloc heap_free heap_malloc heap_realloc '
     'heap_usable_size',
     'No room in the budget of pinned memory (option max_bytes), even '
     'after giving up all that is cached and not in use.'),
    ("ENOBUFS",
     'pin pin_list unpin',
     'There is no room in the budget even after giving up all that is '
     'not in use: unpin something, or copy through memory that is pinned'
     ' already.'),
    ("ENOBUFS",
     'pin_test pin_wait',
     'There is no room in the budget even after giving up all that is '
     'not in use.'),
    ("ENODEV",
     'atomic_compare_swap atomic_fetch_add atomic_swap get grant inject '
     'peer_flush put put_when send',
     "This endpoint's adapter is gone (sim, by its script)."),
    ("ENODEV",
     'close open version',
     'There is no such device.'),
    ("ENODEV",
     'cuda_copy cuda_copy_start cuda_test cuda_wait',
     'The CUDA context is gone (cudaDeviceReset()), or the GPU is. A '
     'copy of a request has ended then, and the request is gone.'),
    ("ENODEV",
     'device_register exposure_open heap_aligned heap_calloc heap_free '
     'heap_malloc heap_realloc heap_usable_size pin pin_list pin_test '
     'pin_wait unpin',
     'The adapter is gone (sim, by its script).'),
    ("ENOENT",
     'config_query',
     'There are no more options.'),
    ("ENOENT",
     'cuda_explain',
     'There are no more methods.'),
    ("ENOENT",
     'endpoint_explain',
     'There are no more protocols.'),
    ("ENOENT",
     'heap_contains heap_find',
     'The address is in no block of this heap, or the heap is the '
     "parent's."),
    ("ENOENT",
     'log_last',
     'There is no such line since the last call.'),
    ("ENOENT",
     'recv_cancel',
     'There is no such receive.'),
    ("ENOENT EPROTO ESRCH EUSERS",
     'close open version',
     'With a registrar, the option helper asks for a helper, and the '
     "helpers of the user's processes cannot agree about cores "
     '(pinion_endpoint_open(3)); also -EACCES, -EIO, -ENOSPC.'),
    ("ENOMEM",
     'atomic_compare_swap atomic_fetch_add atomic_swap get peer_fence '
     'peer_flush put',
     'No memory. Also as a status.'),
    ("ENOMEM",
     'cache_revoke exposure_open pin pin_list pin_start pin_test '
     'pin_wait recv_unexpected remote_open unpin',
     'No memory for bookkeeping.'),
    ("ENOMEM",
     'close open version',
     'No memory, or too little of it may be pinned or locked: raise '
     'ulimit -l.'),
    ("ENOMEM",
     'cuda_copy cuda_copy_start cuda_explain cuda_query cuda_test '
     'cuda_wait',
     'No memory, of the host or of the GPU.'),
    ("ENOMEM",
     'device_register',
     'The limit on pinned memory (RLIMIT_MEMLOCK, max_bytes) or on the '
     'number of registrations is reached.'),
    ("ENOMEM",
     'endpoint_arm endpoint_fd peer_add',
     'No memory.'),
    ("ENOMEM",
     'endpoint_open',
     'No memory (logged where the address space is limited, ulimit -v).'),
    ("ENOMEM",
     'grant put_when',
     'No memory for bookkeeping. Also as a status.'),
    ("ENOMEM",
     'heap_aligned heap_calloc heap_free heap_malloc heap_realloc '
     'heap_usable_size',
     'No memory, a product that overflows, or more than the device can '
     'register at once or the heap may have.'),
    ("ENOMEM",
     'heap_open',
     'No memory, or no address space (give max_bytes).'),
    ("ENOMEM",
     'inject recv send',
     'No memory. Also as a status, for the request or for the '
     'connection.'),
    ("ENOMEM",
     'site_set',
     "No memory for the thread's name of its site."),
    ("ENOSYS",
     'endpoint_open',
     'A further endpoint finds that the system has no io_uring any more '
     '(soft with mode=uring).'),
    ("EOPNOTSUPP",
     'atomic_compare_swap atomic_fetch_add atomic_swap get peer_flush '
     'put',
     'The device has no atomics (iWARP). Or, when the first operation '
     'maps its bounce buffers, the kernel does not know the NUMA node '
     'that the option numa_node asks for, or the adapter does not bind a'
     ' memory window.'),
    ("EOPNOTSUPP",
     'cuda_copy cuda_copy_start cuda_explain cuda_query cuda_test '
     'cuda_wait',
     'The device of the context is no GPU, or the driver does not '
     'support the copy.'),
    ("EOPNOTSUPP",
     'device_register exposure_open pin pin_list pin_test pin_wait unpin',
     'The adapter did not bind a memory window (verbs with windows=yes, '
     'logged).'),
    ("EOPNOTSUPP",
     'endpoint_arm endpoint_fd',
     'The device has no descriptor (those in virtual time).'),
    ("EOPNOTSUPP",
     'endpoint_open',
     'The context has an endpoint, and its device cannot have another '
     'that shares its registrations (sim; logged): open another context.'
     ' Or the context was opened with a registrar, which moves nothing '
     'itself; the kernel does not know NUMA nodes; the helper as below. '
     'Or a progress thread was asked for, and the device has no '
     'descriptor that it could sleep on (sim; logged).'),
    ("EOPNOTSUPP",
     'heap_aligned heap_calloc heap_free heap_malloc heap_realloc '
     'heap_usable_size',
     'The kernel does not know NUMA nodes; or as EIO.'),
    ("EOPNOTSUPP",
     'inject',
     'Never on this endpoint: it has several rails or a helper, or a '
     'trace is recorded.'),
    ("EPERM",
     'cache_flush cache_revoke invalidate',
     "Context was opened by this process's parent."),
    ("EPERM",
     'cache_query cache_resize helper_query',
     "The context was opened by this process's parent."),
    ("EPERM",
     'close open version',
     'The same; or this process was made by _Fork(3) or by a raw '
     'clone(2) or fork(2) system call, see CAVEATS in pinion(7).'),
    ("EPERM",
     'cuda_copy cuda_copy_start cuda_explain cuda_query cuda_test '
     'cuda_wait',
     "The context or the request is of this process's parent."),
    ("EPERM",
     'device_register exposure_open',
     'The system forbids the device soft another io_uring.'),
    ("EPERM",
     'endpoint_open',
     'The same, or the system forbids another io_uring or memory of the '
     'node that numa_node names.'),
    ("EPERM",
     'heap_aligned heap_calloc heap_free heap_malloc heap_realloc '
     'heap_usable_size',
     "The heap was opened by this process's parent; or the system "
     'forbids memory of the node, or the device soft another io_uring.'),
    ("EPERM",
     'heap_close heap_open heap_query heap_trim',
     "The context or the heap was opened by this process's parent."),
    ("EPERM",
     'pin pin_list unpin',
     "The context was opened by this process's parent: open another. Or "
     'the system forbids the device soft another io_uring.'),
    ("EPERM",
     'pin_start pin_test pin_wait',
     "The context was opened by this process's parent; "
     'pinion_pin_test(), pinion_pin_wait() also: the system forbids the '
     'device soft another io_uring.'),
    ("EPERM",
     'site_set',
     'This process was made by _Fork(3) or by a raw clone(2).'),
    ("EPROTO EPROTONOSUPPORT",
     'inject recv send',
     'The peer sent an invalid packet, or speaks another version. Also '
     'as a status.'),
    ("EPROTONOSUPPORT",
     'peer_add',
     'An address of another version of pinion (logged): use one version '
     'everywhere.'),
    ("EPROTONOSUPPORT",
     'remote_open',
     'The key is of another version of pinion (logged).'),
    ("EREMOTEIO",
     'cancel inject peer_prefetch recv recv_cancel send test wait',
     'The other side could not go on, for want of memory or because its '
     'buffer is not mapped. The peer stays usable.'),
    ("ETIMEDOUT",
     'cuda_wait',
     'The copy has not ended, or the driver cannot be asked now; the '
     'request stays good.'),
    ("ETIMEDOUT",
     'device_register endpoint_open exposure_open heap_aligned '
     'heap_calloc heap_free heap_malloc heap_realloc heap_usable_size '
     'pin pin_list pin_test pin_wait unpin',
     'The adapter did not bind a memory window (verbs with windows=yes, '
     'logged).'),
    ("ETIMEDOUT",
     'wait',
     'The request has not ended in time.'),
]
