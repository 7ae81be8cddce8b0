from cupy.cuda.stream import Graph as Graph
from cupy.cuda.stream import Stream as Stream
