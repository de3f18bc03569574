//! The signed lists of sinks, served over HTTP at a path that only subscribers learn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use chappe_transport::http::{Method, Request, Response, StatusCode};

/// The signed lists of sinks, served over HTTP.
#[derive(Clone)]
pub(in crate::host) struct Lists {
    path: Arc<str>,
    by_topic: Arc<Mutex<HashMap<u64, Bytes>>>,
}

impl Lists {
    /// No lists yet, below this path.
    pub(super) fn new(path: &str) -> Self {
        Self {
            path: path.into(),
            by_topic: Arc::default(),
        }
    }

    /// Sets the list of a topic.
    pub(super) fn set(&self, topic: u64, list: Bytes) {
        let lists = self.by_topic.lock();
        let mut lists = lists.unwrap_or_else(PoisonError::into_inner);
        lists.insert(topic, list);
    }

    /// The answer to a request for a list; `None` for other paths.
    pub(in crate::host) fn answer(&self, request: &Request) -> Option<Response> {
        let topic = request.path.strip_prefix(&*self.path)?.strip_prefix('/')?;
        let topic = u64::from_str_radix(topic, 16).ok();
        let lists = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        let list = topic.and_then(|topic| lists.get(&topic));
        Some(match list.filter(|_| request.method == Method::GET) {
            Some(list) => Response::new(StatusCode::OK, "application/octet-stream", list.clone()),
            None => Response::empty(StatusCode::NOT_FOUND),
        })
    }
}
