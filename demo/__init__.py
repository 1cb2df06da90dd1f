"""`python -m demo`: RapidOCR reads a picture with its three sessions on WebGPU.

Files, in the order data flows:

- picture: draws and annotates
- reader: RapidOCR on this package's sessions, with every run recorded
- measure: times and errors of the recorded runs
- progress, show: terminal output
"""
