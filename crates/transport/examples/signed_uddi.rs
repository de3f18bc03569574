//! Calls a UDDI interface with a signed message, and prints the answer, whose signature was verified:
//!
//!     signed_uddi URL CERTIFICATE KEY AUTHORITIES < BODY.xml
//!
//! URL is that of the interface, such as http://127.0.0.1:8470/uddi/inquiry, and BODY.xml the element in the Body of
//! the message. CERTIFICATE is followed by its chain, KEY readable by its owner only, all in PEM. Exit code 0 when it
//! worked, 1 when the answer is a fault or is not accepted, 2 otherwise.

use std::error::Error;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use chappe_identity::Contact;
use chappe_soap::security::Mode;
use chappe_transport::http::{Client, ClientLimits};
use chappe_transport::signatures::{SignatureFiles, Signatures, Signing};
use chappe_xml::Element;

/// Sends `body` to the interface at `url`, and returns the element in the answer's Body.
pub(crate) async fn call(
    url: &str,
    files: &SignatureFiles,
    body: Element,
) -> Result<Element, Box<dyn Error>> {
    let signing = Signing {
        signatures: Arc::new(Signatures::open(files)?),
        // Read only what is signed.
        mode: Mode::Required,
    };
    let contact = Contact::parse(url, 80)?;
    let client = Client::new(ClientLimits::default());
    Ok(client.call_signed(&contact, body, &signing).await?)
}

/// The detail of a fault, which has the error code of UDDI.
pub(crate) fn detail(error: &(dyn Error + 'static)) -> String {
    let fault = match error.downcast_ref() {
        Some(chappe_transport::http::Error::Fault { fault, .. }) => fault,
        _ => return String::new(),
    };
    let details = fault.detail.iter().cloned();
    let trees = details.filter_map(|detail| detail.into_element().ok());
    trees.map(|tree| tree.to_text()).collect()
}

fn main() -> ExitCode {
    match run() {
        Ok(answer) => {
            println!("{}", answer.to_text());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}{}", detail(&*error));
            let is_answered = error.is::<chappe_transport::http::Error>();
            ExitCode::from(if is_answered { 1 } else { 2 })
        }
    }
}

fn run() -> Result<Element, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, certificate, key, authorities] = &arguments[..] else {
        return Err("usage: signed_uddi URL CERTIFICATE KEY AUTHORITIES < BODY.xml".into());
    };
    let files = SignatureFiles {
        authorities: PathBuf::from(authorities),
        certificate: Some((certificate.into(), key.into())),
        ..SignatureFiles::default()
    };
    let mut body = Vec::new();
    std::io::stdin().read_to_end(&mut body)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(call(url, &files, Element::parse(&body)?))
}
