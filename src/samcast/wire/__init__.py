"""Bytes to messages and back: frames, batches, control messages, journal formats. Pure."""
