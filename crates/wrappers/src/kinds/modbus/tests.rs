//! Goal: what the wrapper stores, counts and shows for devices that answer, refuse, are late, or answer wrong.
//! Method: the wrapper polls a device on loopback, whose answers each test decides.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chappe_stream::Value;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::tests::{examples, wrapper_file};
use crate::{Batch, Command, Condition, Wrapper, WrapperError, WrapperOpening};

/// Longest time of one step of a test; reason: far beyond all periods and timeouts of these files.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a device does with a request: after each delay it sends these bytes. Nothing more: it ends the connection.
type Reaction = Vec<(Duration, Vec<u8>)>;

/// A device on loopback.
struct Device {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
    connections: Arc<AtomicUsize>,
}

impl Device {
    /// A device that reacts to the number of a request, from 0, and its bytes from the transaction on.
    async fn new(react: impl Fn(usize, &[u8]) -> Reaction + Send + Sync + 'static) -> Self {
        Self::framed(false, react).await
    }

    /// The same, with the frames of a serial line if `is_rtu`.
    async fn framed(
        is_rtu: bool,
        react: impl Fn(usize, &[u8]) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, connections) = (Arc::default(), Arc::<AtomicUsize>::default());
        let device = Self {
            address,
            requests: Arc::clone(&requests),
            connections: Arc::clone(&connections),
        };
        let react = Arc::new(react);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(
                    is_rtu,
                    stream,
                    Arc::clone(&react),
                    Arc::clone(&requests),
                ));
            }
        });
        device
    }

    fn file(&self, keys: &str) -> String {
        format!(
            "kind = \"modbus\"\naddress = \"modbus://{}\"\n{keys}",
            self.address
        )
    }

    fn request_count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

async fn serve(
    is_rtu: bool,
    stream: TcpStream,
    react: Arc<impl Fn(usize, &[u8]) -> Reaction>,
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
) {
    let (mut from, to) = stream.into_split();
    let to = Arc::new(tokio::sync::Mutex::new(to));
    loop {
        let mut request = vec![0; 6];
        if !is_rtu && from.read_exact(&mut request).await.is_err() {
            return;
        }
        // These devices are only read over serial lines: unit, function, address, number of registers.
        let length = if is_rtu {
            6
        } else {
            usize::from(u16::from_be_bytes([request[4], request[5]]))
        };
        request.resize(6 + length, 0);
        if from.read_exact(&mut request[6..]).await.is_err() {
            return;
        }
        if is_rtu {
            from.read_u16_le().await.unwrap();
        }
        let number = {
            let mut requests = requests.lock().unwrap();
            requests.push(request.clone());
            requests.len() - 1
        };
        let reaction = react(number, &request);
        if reaction.is_empty() {
            return;
        }
        for (delay, mut bytes) in reaction {
            let to = Arc::clone(&to);
            if is_rtu {
                bytes.drain(..6);
                bytes.extend(checksum(&bytes).to_le_bytes());
            }
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                // The wrapper may have ended the connection.
                let _ = to.lock().await.write_all(&bytes).await;
            });
        }
    }
}

/// The checksum of a frame (MODBUS over Serial Line 1.02, appendix B).
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(u16::MAX, |sum, byte| {
        (0..8).fold(sum ^ u16::from(*byte), |sum, _| match sum & 1 {
            1 => sum >> 1 ^ 0xa001,
            _ => sum >> 1,
        })
    })
}

/// The answer to a request with this function and data.
fn answer(request: &[u8], function: u8, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len() + 2).unwrap();
    let mut bytes = request[..4].to_vec();
    bytes.extend(length.to_be_bytes());
    bytes.extend([request[6], function]);
    bytes.extend(data);
    bytes
}

/// The registers that a request asks for, each with a value.
fn registers(request: &[u8], value: impl Fn(u16) -> u16) -> Vec<u8> {
    let first = u16::from_be_bytes([request[8], request[9]]);
    let count = u16::from_be_bytes([request[10], request[11]]);
    let mut data = vec![u8::try_from(2 * count).unwrap()];
    for address in first..first + count {
        data.extend(value(address).to_be_bytes());
    }
    answer(request, request[7], &data)
}

fn at_once(bytes: Vec<u8>) -> Reaction {
    vec![(Duration::ZERO, bytes)]
}

fn opened(text: &str) -> (Box<dyn Wrapper>, Condition) {
    let (file, condition) = (wrapper_file(text), Condition::default());
    let kind = file.kind().unwrap_or_else(|error| panic!("{error}"));
    let wrapper = (kind.open)(WrapperOpening {
        file: &file,
        mark: None,
        condition: condition.clone(),
        notes: Default::default(),
        drops: Default::default(),
        inbox: tokio::sync::mpsc::channel(1).1,
    });
    (wrapper.unwrap(), condition)
}

async fn next(wrapper: &mut Box<dyn Wrapper>) -> Batch {
    timeout(PATIENCE, wrapper.next())
        .await
        .expect("a batch in time")
        .unwrap()
}

fn values(batch: &Batch) -> Vec<Vec<Value>> {
    let elements = batch.parts.iter().flat_map(|part| &part.elements);
    elements.map(|element| element.values.clone()).collect()
}

fn lost(batch: &Batch) -> Vec<(&'static str, u64)> {
    batch
        .lost
        .iter()
        .map(|one| (one.reason, one.messages))
        .collect()
}

const ONE: &str = "period_ms = 20\ntimeout_ms = 200\n[[poll]]\nstream_name = \"a\"\n\
                   registers = [{ name = \"v\", table = \"holding\", address = 7, type = \"u16\" }]\n";

#[tokio::test]
async fn a_poll_is_one_element_of_merged_requests() {
    let device = Device::new(|_, request| match request[7] {
        1 => at_once(answer(request, 1, &[1, 0b10])),
        _ => at_once(registers(request, |address| address)),
    });
    let device = device.await;
    let (mut wrapper, condition) = opened(&device.file(
        "gap = 4\n[[poll]]\nstream_name = \"a\"\nregisters = [\n\
         { name = \"a\", table = \"holding\", address = 1, type = \"u16\" },\n\
         { name = \"b\", table = \"holding\", address = 4, type = \"u32\" },\n\
         { name = \"c\", table = \"holding\", address = 1, type = \"bool\", bit = 0 },\n\
         { name = \"d\", table = \"coils\", address = 0, type = \"bool\" },\n\
         { name = \"e\", table = \"coils\", address = 1, type = \"bool\" } ]\n",
    ));
    let batch = next(&mut wrapper).await;
    let expected = vec![vec![
        Value::Integer(1),
        Value::Integer(0x4_0005),
        Value::Boolean(true),
        Value::Boolean(false),
        Value::Boolean(true),
    ]];
    assert_eq!((values(&batch), lost(&batch)), (expected, vec![]));
    assert_eq!((device.request_count(), condition.reason()), (2, None));
    let element = &batch.parts[0].elements[0];
    assert!(element.source_time <= element.receive_time);
}

#[tokio::test]
async fn registers_that_a_device_refuses_are_null_and_named() {
    let device = Device::new(|_, request| {
        let (first, count) = (request[9], request[11]);
        match first + count > 6 {
            true => at_once(answer(request, 0x83, &[2])),
            false => at_once(registers(request, |address| address)),
        }
    });
    let device = device.await;
    let (mut wrapper, condition) = opened(&device.file(
        "period_ms = 20\ngap = 9\n[[poll]]\nstream_name = \"a\"\nregisters = [\n\
         { name = \"near\", table = \"holding\", address = 5, type = \"u16\" },\n\
         { name = \"far\", table = \"holding\", address = 9, type = \"u16\" } ]\n",
    ));
    let batch = next(&mut wrapper).await;
    assert_eq!(values(&batch), [[Value::Integer(5), Value::Null]]);
    let reason = condition.reason().unwrap();
    assert!(
        reason.contains("holding 9 (far): exception 2 (illegal data address)"),
        "{reason}"
    );
    let before = device.request_count();
    assert_eq!(before, 3);
    next(&mut wrapper).await;
    assert!(
        device.request_count() >= before + 2,
        "the division is remembered"
    );
}

#[tokio::test]
async fn a_device_that_refuses_everything_is_counted() {
    let device = Device::new(|_, request| at_once(answer(request, 0x83, &[1]))).await;
    let (mut wrapper, condition) = opened(&device.file(ONE));
    let batch = next(&mut wrapper).await;
    assert_eq!(
        (values(&batch).len(), lost(&batch)),
        (0, vec![("exception", 1)])
    );
    assert!(
        condition
            .reason()
            .unwrap()
            .contains("unit 1, holding 7 (v): exception 1")
    );
}

#[tokio::test]
async fn a_late_answer_is_never_that_of_the_next_request() {
    for is_rtu in [false, true] {
        // The first answer comes when the second request may wait for its own.
        let device = Device::framed(is_rtu, |number, request| match number {
            0 => vec![(Duration::from_millis(300), registers(request, |_| 111))],
            _ => vec![(Duration::from_millis(150), registers(request, |_| 222))],
        });
        let text = device.await.file(ONE);
        let (mut wrapper, _) = match is_rtu {
            false => opened(&text),
            true => opened(&text.replace("modbus://", "modbus+rtu://")),
        };
        let (mut reasons, mut read) = (Vec::new(), 0);
        while read < 3 {
            let batch = next(&mut wrapper).await;
            reasons.extend(lost(&batch).into_iter().map(|(reason, _)| reason));
            for values in values(&batch) {
                assert_eq!(values, [Value::Integer(222)], "{is_rtu}");
                read += 1;
            }
        }
        assert_eq!(reasons[0], "no_answer", "{is_rtu}: {reasons:?}");
    }
}

#[tokio::test]
async fn answers_to_other_requests_are_refused_and_repeated_ones_discarded() {
    let device = Device::new(|number, request| {
        let right = registers(request, |_| 222);
        let mut wrong = registers(request, |_| 111);
        match number % 4 {
            // Another transaction.
            0 => wrong[1] ^= 1,
            // Another unit.
            1 => wrong[6] ^= 1,
            // Fewer registers.
            2 => wrong = answer(request, 3, &[0]),
            _ => return at_once([right.clone(), right].concat()),
        }
        at_once(wrong)
    });
    let device = device.await;
    let (mut wrapper, condition) = opened(&device.file(ONE));
    for _ in 0..3 {
        assert_eq!(lost(&next(&mut wrapper).await), [("bad_answer", 1)]);
        assert!(condition.reason().is_some());
    }
    assert_eq!(values(&next(&mut wrapper).await), [[Value::Integer(222)]]);
    assert_eq!(condition.reason(), None);
    assert_eq!(lost(&next(&mut wrapper).await), [("bad_answer", 1)]);
}

#[tokio::test]
async fn a_device_that_ends_idle_connections_loses_nothing() {
    let device = Device::new(|number, request| match number % 2 {
        0 => at_once(registers(request, |_| 222)),
        // It ends the connection between two polls.
        _ => vec![],
    });
    let device = device.await;
    // A connection that ends while an answer is waited for is a lost poll; one that ended before is not noticed.
    let (mut wrapper, _) = opened(&device.file(ONE));
    assert_eq!(values(&next(&mut wrapper).await).len(), 1);
    assert_eq!(lost(&next(&mut wrapper).await), [("bad_answer", 1)]);
    assert_eq!(values(&next(&mut wrapper).await).len(), 1);
    assert_eq!(device.connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn polls_without_a_device_are_counted_and_the_wrapper_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (mut wrapper, condition) = opened(&format!(
        "kind = \"modbus\"\naddress = \"modbus://{address}\"\n{ONE}"
    ));
    for _ in 0..3 {
        assert_eq!(lost(&next(&mut wrapper).await)[0].0, "not_connected");
    }
    assert!(condition.reason().unwrap().contains(&address.to_string()));
}

#[tokio::test]
async fn periods_that_pass_while_nothing_is_asked_for_are_counted() {
    let device = Device::new(|_, request| at_once(registers(request, |_| 1))).await;
    let (mut wrapper, _) = opened(&device.file(&ONE.replace("= 20", "= 10")));
    next(&mut wrapper).await;
    // Until the batches that wait are as many as may, and for some periods more.
    let full = async {
        while device.request_count() < super::wrapper::BATCHES + 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    timeout(PATIENCE, full).await.unwrap();
    let mut overrun = 0;
    for _ in 0..super::wrapper::BATCHES + 4 {
        let batch = next(&mut wrapper).await;
        overrun += lost(&batch)
            .iter()
            .map(|(_, messages)| messages)
            .sum::<u64>();
    }
    assert!(overrun >= 5, "{overrun}");
}

#[tokio::test]
async fn a_command_writes_and_its_refusal_is_reported() {
    let device = Device::new(|_, request| match request[7] {
        6 if request[9] == 7 => at_once(answer(request, 6, &request[8..12])),
        16 => at_once(answer(request, 16, &request[8..12])),
        6 => at_once(answer(request, 0x86, &[2])),
        _ => at_once(registers(request, |_| 1)),
    });
    let device = device.await;
    let command = |name: &str, address: u16, type_key: &str| {
        format!(
            "[[command]]\nname = \"{name}\"\ntable = \"holding\"\naddress = {address}\ntype = \"{type_key}\"\n"
        )
    };
    let text = [
        command("set", 7, "i16"),
        command("far", 8, "i16"),
        command("long", 9, "u32"),
    ];
    let (mut wrapper, _) = opened(&device.file(&format!("{ONE}{}", text.concat())));
    let call = |name: &str, value: i64| Command {
        name: name.to_owned(),
        arguments: json!({ "value": value }).as_object().unwrap().clone(),
    };
    let done = json!({ "acknowledged": true });
    assert_eq!(wrapper.command(&call("set", -2)).await, Ok(done.clone()));
    assert_eq!(wrapper.command(&call("long", 65_537)).await, Ok(done));
    let refused = wrapper.command(&call("far", 1)).await.unwrap_err();
    let text = "unit 1, holding 8: exception 2 (illegal data address)";
    assert_eq!(refused, WrapperError::Command(text.to_owned()));
    let requests = device.requests.lock().unwrap().clone();
    let written: Vec<&[u8]> = requests
        .iter()
        .filter(|it| it[7] != 3)
        .map(|it| &it[7..])
        .collect();
    assert_eq!(written[0], [6, 0, 7, 0xff, 0xfe]);
    assert_eq!(written[1], [16, 0, 9, 0, 2, 4, 0, 1, 0, 1]);
}

#[tokio::test]
async fn the_registers_that_answer_are_printed() {
    let device = Device::new(|_, request| {
        let end = u16::from(request[9]) + u16::from(request[11]);
        match (request[7], end) {
            (3, ..=60) => at_once(registers(request, |_| 1)),
            (3, _) => at_once(answer(request, 0x83, &[2])),
            (function, _) => at_once(answer(request, function | 0x80, &[1])),
        }
    });
    let device = device.await;
    let address = format!("modbus://{}/9", device.address);
    // The program calls it within a runtime, too.
    let browsed = tokio::task::spawn_blocking(move || super::browse::browse(&address));
    let toml = browsed.await.unwrap().unwrap();
    assert!(
        toml.contains("# answers: holding 0 to 59\n") && toml.contains("unit_id = 9"),
        "{toml}"
    );
    wrapper_file(&toml).kind().unwrap();
}

#[tokio::test]
async fn a_device_that_is_not_there_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    // Within a runtime, as the program calls it.
    let error = super::browse::browse(&format!("modbus://{address}")).unwrap_err();
    assert!(error.to_string().contains("cannot connect"), "{error}");
}

#[test]
fn the_example_of_the_documentation_is_valid() {
    wrapper_file(&examples("modbus")[0]).kind().unwrap();
}
