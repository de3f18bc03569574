//! Devices Profile for Web Services: discovery, metadata, eventing, in both dialects.
