//! One key per node or device, tokens, and which addresses may be contacted.
