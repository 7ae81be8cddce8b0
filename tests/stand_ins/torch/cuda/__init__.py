from torch.cuda.graphs import CUDAGraph as CUDAGraph
