//! The durable store: many streams in one segmented, checksummed log with group commit, epochs and followers.
