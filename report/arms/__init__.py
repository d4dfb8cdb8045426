"""What the studies time, made ready: PyTorch's forms, the peers and our kernels. A file a study has its StudyArms."""
