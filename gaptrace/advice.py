"""What each finding is called and what to do about it: code -> (title, advice)."""

#: Topics of idle time: see `topics.with_topics`.
TOPICS = {
    "no_graphs": (
        "no CUDA graph is launched, and many small kernels are launched one by one",
        "turn CUDA graphs on where they are off (the framework's log or options say why it skips "
        "them), or capture the repeated launches of a step: before that no graph size can be "
        "advised",
    ),
    "value_loop": (
        "the host reads a value after each small graph and only then launches the next",
        "keep the loop on the device: a conditional while node, a fixed number of iterations, or "
        "several iterations in one graph; smaller chunks would add such gaps",
    ),
    "eager_bursts": (
        "between replays some steps run kernel by kernel",
        "find out what these steps are (a batch size, a shape, a prefill) and capture a graph for "
        "them, too, or pad them to a size that has one",
    ),
    "eager_bursts:rebuilt": (
        "between replays graphs are given up, steps run kernel by kernel, and graphs are built "
        "anew",
        "keep a graph for each shape instead of one that every change of shape resets, or pad to "
        "few shapes",
    ),
    "host_code": (
        "the host runs code between CUDA calls while the device waits",
        "narrow the report to the steady part with --range or --from/--to; if it stays, profile "
        "the Python or framework code there, or capture the step as a CUDA graph so that this "
        "code does not run at every step",
    ),
    "host_code:after_wait": (
        "the host runs code after it waited for the device, with nothing queued",
        "remove the wait named here, or launch the next work before it: the code then runs while "
        "the device works",
    ),
    "host_code:before_graphs": (
        "the host runs code between CUDA calls before it launches graphs",
        "profile the Python or framework code there: the size of the graphs does not change it, "
        "fewer launches and a lighter path to them do",
    ),
    "launch_call:single": (
        "the device waits for single launches",
        "capture the repeated launches of a step as a CUDA graph, or fuse small kernels",
    ),
    "launch_call:graph": (
        "the device waits for graph launches",
        "see the recommendation; recording itself lengthens graph launches, so compare with "
        "a run without a recorder before cutting graphs",
    ),
    "graph_build": (
        "graphs are built while the device waits",
        "if that is the start of the program, leave it out with --range or --from; else build each "
        "graph once and replay it, or update its exec instead of instantiating it anew",
    ),
    "graph_build:instantiated_alike": (
        "graphs of one size are instantiated anew at about every launch",
        "where only contents of buffers change, capture once and replay; else keep the exec and "
        "call cudaGraphExecUpdate after each capture, which saves the instantiation but not the "
        "capture, and needs the same nodes and edges, as graphs of one size suggest",
    ),
    "graph_build:alternating_shapes": (
        "graphs of alternating shapes replace each other at about every launch",
        "keep an exec for each shape: make the shape part of the key under which graphs are kept, "
        "and keep as many as alternate",
    ),
    "graph_build:more_shapes_than_kept": (
        "more shapes take turns than graphs are kept, so that each is built anew at its turn",
        "keep as many graphs as shapes take turns, or pad to fewer shapes: a cache that drops what "
        "was used least recently never hits when it is smaller than the cycle",
    ),
    "graph_build:instantiated": (
        "graphs are instantiated anew at about every launch",
        "build each graph once and replay it; where only parameters change, update the exec with "
        "cudaGraphExecUpdate",
    ),
    "graph_build:node_by_node": (
        "nodes of graphs are pointed to other buffers, one by one, before each launch",
        "keep buffers at fixed addresses and copy inputs into them, or build a graph for each set "
        "of buffers in advance; leave out of the graph what forces the updates, such as "
        "collectives",
    ),
    "graph_build:updated": (
        "graphs are updated before about every launch",
        "keep shapes and addresses stable so that no update is needed, or prepare the next graph "
        "while the device still runs this one; leave out of the graph what forces the updates, "
        "such as collectives",
    ),
    "host_sync": (
        "the device waits after the host has waited for it",
        "synchronise less often: keep values on the device, copy results asynchronously into "
        "pinned memory, read them one step later",
    ),
    "host_sync:tiny_copy": (
        "the device waits while the host waits for a copy of a few bytes",
        "hand the value over without a wait: from pinned memory, asynchronously, and read results "
        "one step later, or keep it on the device",
    ),
    "api_other": (
        "the device waits for other CUDA calls",
        "move allocation, module loading and other set-up out of the steady part: warm up first, "
        "and reuse memory through a pool",
    ),
    "device_queued:in_graph": (
        "the device pauses between the nodes inside a graph",
        "chunk size cannot change this: fuse small kernels, or use programmatic dependent launch",
    ),
    "device_queued:between_graphs": (
        "the device pauses between graphs that were launched in time",
        "launch fewer, larger graphs",
    ),
    "device_queued:cross_stream": (
        "the device pauses while work on one stream waits for another",
        "look at the events between these streams; put dependent small kernels on one stream",
    ),
    "device_queued:between_ops": (
        "the device pauses between ops that were launched in time",
        "these are the device's own start-up costs: use fewer, larger kernels, or a graph",
    ),
    "profiler": (
        "the recorder holds the host up",
        "figures near these times are of the recorder: record a shorter part, or without it",
    ),
    "unrecorded:unfinished": (
        "launched work that ran after recording ended: whether the device was idle is not known",
        "record until that work is done, or narrow the report to the time before",
    ),
    "unrecorded:migration": (
        "the device is idle until the driver moves unified memory",
        "prefetch that memory before it is used (cudaMemPrefetchAsync), or allocate it on the "
        "device",
    ),
    "unrecorded": (
        "idle time whose launch was not recorded",
        "record from before the launches on, without cutting the file, to learn its cause",
    ),
}

#: Findings that are no idle time.
OTHERS = {
    "launch_failed": (
        "launches failed, and their work was never done",
        "check the status of every launch: results since the first failure are wrong, and a "
        "program that goes on without graphs is slow without saying so",
    ),
    "capture_failed": (
        "a stream capture failed",
        "make no such call between beginning and end of the capture",
    ),
    "copies": (
        "the device is busy with copies most of the time, not with kernels",
        "keep data on the device, copy less or smaller types, or copy on another stream while "
        "kernels run; what is called busy here is not computing",
    ),
    "collectives": (
        "kernels of collectives run alone, and may only wait for other ranks",
        "compare the ranks: the one that is in them least is waited for; busy time and the "
        "predictions for this device hold that waiting",
    ),
    "copy_contention": (
        "tiny copies wait behind large copies in the same direction",
        "let the large copies run at another time or in smaller pieces, or hand the values over "
        "by kernels instead of copies; the figure holds for this window only",
    ),
    "exec_waits_for_itself": (
        "launches of one graph exec on several streams run one after another",
        "instantiate an exec for each stream if they are meant to run at the same time: only one "
        "launch of an exec can run at once",
    ),
    "graphs_never_launched": (
        "graphs were instantiated and never launched",
        "capture only the sizes that occur, or record long enough to see them used",
    ),
    "stale_addresses": (
        "graphs may hold addresses of freed memory",
        "if a graph uses one of the buffers freed since it was built, build or update it again; "
        "each chunk of a cut graph holds addresses of its own",
    ),
}

#: What to do about a failed capture, by return code of the call at fault. CUDA runtime API,
#: cudaError: 900 unsupported, 901 invalidated, 904 unjoined, 906 implicit.
CAPTURE_ADVICE = {
    900: "move the call out of the captured part: allocate, wait and set up before the capture",
    901: "find the call of another thread or library that ended it, and capture in thread-local "
    "mode if that call is harmless",
    904: "let the capturing stream wait for an event of every stream that joined, before the end",
    906: "capture on a stream made with cudaStreamNonBlocking, and keep work on the default stream "
    "out of the captured part",
}
