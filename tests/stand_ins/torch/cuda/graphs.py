import os


class _CUDAGraph:
    """As the compiled base: every call of the driver is one method, and it says so."""

    def __new__(cls, keep_graph=False):
        graph = super().__new__(cls)
        graph.keeps = keep_graph
        graph.has_exec = False
        graph.done = []
        return graph

    def capture_begin(self, pool=None, capture_error_mode="global"):
        self.done.append(f"begin {capture_error_mode}")

    def instantiate(self):
        self.done.append("instantiate")
        self.has_exec = True

    def replay(self):
        self.done.append("replay")


class _Old(_CUDAGraph):
    def __new__(cls, keep_graph=False):
        return super().__new__(cls, keep_graph)

    def capture_end(self):
        self.done.append("end")
        if not self.keeps:
            _CUDAGraph.instantiate(self)

    def instantiate(self):
        super().instantiate()

    def replay(self):
        super().replay()


class _New(_CUDAGraph):
    def capture_end_pre(self):
        self.done.append("end")

    def capture_end(self):
        self.capture_end_pre()
        if not self.keeps:
            self.instantiate()

    def replay(self):
        if not self.has_exec:
            self.instantiate()
        super().replay()


CUDAGraph = _Old if os.environ.get("TORCH_STAND_IN") == "old" else _New
