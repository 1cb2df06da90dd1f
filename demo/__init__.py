"""`python -m demo`: RapidOCR reads a picture with all of its three sessions on WebGPU.

Files, in the order data flows: picture (draws and annotates), reader (RapidOCR with our sessions, every run recorded),
measure (times and differences of the recorded runs), progress, show (terminal tables).
"""
