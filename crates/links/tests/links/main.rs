//! Goal: elements of one node are copied to another exactly once over each kind of link, whatever
//! fails in between. Method: two nodes' stores on simulated disks in one process; real connections
//! on loopback, or queues that a test cuts at random; hostile peers driven by the test.

mod best_effort;
mod damaged_record;
mod defining_schema;
mod documents;
mod feeding;
mod full_queue;
mod host;
mod hostile;
mod http;
mod restored;
mod returning_schema;
mod server;
mod session;
mod shared_sync;
mod trimmed_copy;
