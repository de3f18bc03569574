//! Frames and the messages in them.
