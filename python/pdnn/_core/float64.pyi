from pdnn._core.float32 import *
