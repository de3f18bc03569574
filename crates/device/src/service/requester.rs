//! Who asks for an operation.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use chappe_dpws::hosting::Invocation;
use chappe_identity::ClientCertificate;

tokio::task_local! {
    static REQUESTER: Requester;
}

/// The client whose request an operation answers.
///
/// ```
/// use chappe_device::{Device, Fault, Key, Requester, Service};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut service = Service::new("https://example.org/valve", "Valve");
/// service.operation("WhoAmI", async |(): ()| {
///     let requester = Requester::current().expect("an operation answers a request");
///     Ok::<_, Fault>(requester.address.ip().to_string())
/// });
/// # let key = Key::from(chappe_identity::Key::from_seed([1; 32]));
/// let mut bench = Device::new(key).model("Example", "V1").name("valve").service(service).bench()?;
/// let address: String = bench.call("Valve", "WhoAmI", &()).await?;
/// assert!(address.parse::<std::net::IpAddr>().is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requester {
    /// The address and port of its connection, which any program on its host, or a router, may use: it is
    /// no proof of who asks.
    pub address: SocketAddr,
    /// Its certificate, which the device trusts; `None` without TLS, and if it has shown none.
    pub certificate: Option<Arc<ClientCertificate>>,
}

impl Requester {
    /// The client of the operation that runs in this task; `None` outside of operations, also in tasks
    /// that an operation starts.
    #[must_use]
    pub fn current() -> Option<Self> {
        REQUESTER.try_with(Clone::clone).ok()
    }

    pub(super) fn of(invocation: &Invocation) -> Self {
        Self {
            address: invocation.peer,
            certificate: invocation.certificate.clone(),
        }
    }

    /// Answers the request of this client.
    pub(super) fn answering<F: Future>(self, answer: F) -> impl Future<Output = F::Output> {
        REQUESTER.scope(self, answer)
    }
}
