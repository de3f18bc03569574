//! The connection to a device or a line of devices: one request at a time, by `tokio-modbus`.
//!
//! An answer on a serial line does not say which request it answers. So the connection ends after each answer that is late or
//! wrong, bytes that arrive before a request is sent are discarded, and after a late answer a serial line is left alone for
//! as long again as an answer was waited for. Over TCP the transaction identifier must be that of the request too.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use serial2_tokio::SerialPort;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_modbus::client::{Client as _, Context as Client, rtu, tcp};
use tokio_modbus::slave::SlaveContext as _;
use tokio_modbus::{Error, ExceptionCode, Request, Response, Slave};

use super::map::{Line, Parity, SerialTable};
use super::plan::{Span, Table};

/// Time between two connections that fail; reason: a device needs seconds to start, and polls of other units follow at once.
const PAUSE: Duration = Duration::from_secs(1);
/// Most bytes that are discarded before a request. 4 KiB, 16 of the longest frames: a device that sends more answers
/// something else.
const DISCARDED_MAX: usize = 4 << 10;
/// Bytes of the shortest request for registers: that of a serial line.
const REQUEST_BYTES: usize = 8;
/// Bits of a character on a serial line (MODBUS over Serial Line 1.02, section 2.5.1).
const CHARACTER_BITS: u64 = 11;
/// Silence between two frames above 19,200 bit/s (section 2.5.1.1).
const SILENCE_MIN: Duration = Duration::from_micros(1_750);

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The device refuses the request, with this exception code.
    Exception(u8),
    /// No connection.
    Unreachable(String),
    /// No answer in time.
    Silent(Duration),
    /// An answer to another request, or none of this protocol; or the connection ended.
    Broken(String),
}

impl Failure {
    /// The reason of a lost poll, as a label of a metric.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Exception(_) => "exception",
            Self::Unreachable(_) => "not_connected",
            Self::Silent(_) => "no_answer",
            Self::Broken(_) => "bad_answer",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exception(code) => write!(f, "exception {code} ({})", exception(*code)),
            Self::Unreachable(text) | Self::Broken(text) => f.write_str(text),
            Self::Silent(time) => write!(f, "no answer within {} ms", time.as_millis()),
        }
    }
}

/// Reads holding registers from a device that sends these bytes to whatever it is asked, and then ends the connection.
///
/// # Errors
/// The bytes are not an answer with so many registers.
pub async fn read_answer(is_rtu: bool, count: u16, answer: &[u8]) -> Result<Vec<u16>, String> {
    let (near, mut device) = tokio::io::duplex(DISCARDED_MAX);
    let client = match is_rtu {
        true => rtu::attach(Fresh(near)),
        false => tcp::attach(Fresh(near)),
    };
    let mut bus = Bus::new(Line::Tcp(String::new()), PAUSE);
    bus.client = Some(client);
    // No other connection is made.
    bus.refused = Some((Instant::now() + 60 * PAUSE, "it has ended".to_owned()));
    let span = Span {
        table: Table::Holding,
        address: 0,
        count,
    };
    let reading = async {
        let read = bus.read(1, span).await;
        // A device that still sends is not waited for.
        drop(bus);
        read
    };
    let answering = async {
        let mut request = [0; REQUEST_BYTES];
        // An error is one of the reader, too.
        if device.read_exact(&mut request).await.is_ok() {
            let _ = device.write_all(answer).await;
        }
        drop(device);
    };
    let (read, ()) = tokio::join!(reading, answering);
    read.map_err(|failure| failure.to_string())
}

/// The name of an exception code (Modbus Application Protocol 1.1b3, section 7).
fn exception(code: u8) -> &'static str {
    match ExceptionCode::new(code) {
        ExceptionCode::IllegalFunction => "illegal function: the device does not have this table",
        ExceptionCode::IllegalDataAddress => "illegal data address",
        ExceptionCode::IllegalDataValue => "illegal data value",
        ExceptionCode::ServerDeviceFailure => "the device failed",
        ExceptionCode::Acknowledge => "acknowledged, not done yet",
        ExceptionCode::ServerDeviceBusy => "the device is busy",
        ExceptionCode::MemoryParityError => "memory parity error",
        ExceptionCode::GatewayPathUnavailable => "the gateway has no path to the unit",
        ExceptionCode::GatewayTargetDevice => "the unit does not answer the gateway",
        ExceptionCode::Custom(_) => "unknown to the protocol",
    }
}

/// A connection that is made when it is needed.
pub(super) struct Bus {
    line: Line,
    timeout: Duration,
    client: Option<Client>,
    /// When the next request may be sent.
    free_at: Instant,
    /// When a connection may be tried again, and why the last one failed.
    refused: Option<(Instant, String)>,
}

impl Bus {
    pub(super) fn new(line: Line, timeout: Duration) -> Self {
        Self {
            line,
            timeout,
            client: None,
            free_at: Instant::now(),
            refused: None,
        }
    }

    /// The entries of a span; a bit is 0 or 1.
    ///
    /// # Errors
    /// There is no answer, or a wrong one.
    pub(super) async fn read(&mut self, unit_id: u8, span: Span) -> Result<Vec<u16>, Failure> {
        let (address, count) = (span.address, span.count);
        let request = match span.table {
            Table::Holding => Request::ReadHoldingRegisters(address, count),
            Table::Input => Request::ReadInputRegisters(address, count),
            Table::Coils => Request::ReadCoils(address, count),
            Table::Discrete => Request::ReadDiscreteInputs(address, count),
        };
        let count = usize::from(count);
        match self.call(unit_id, request).await? {
            Response::ReadHoldingRegisters(words) | Response::ReadInputRegisters(words)
                if words.len() == count =>
            {
                Ok(words)
            }
            Response::ReadCoils(bits) | Response::ReadDiscreteInputs(bits)
                if bits.len() == count.next_multiple_of(8) =>
            {
                Ok(bits.into_iter().take(count).map(u16::from).collect())
            }
            _ => Err(self.broken(format!(
                "the answer does not have the {count} entries of {span}"
            ))),
        }
    }

    /// Writes entries; `bit` is one of a register.
    ///
    /// # Errors
    /// There is no answer, or a wrong one: then the entries may be written.
    pub(super) async fn write(
        &mut self,
        unit_id: u8,
        span: Span,
        words: &[u16],
        bit: Option<u8>,
    ) -> Result<(), Failure> {
        let address = span.address;
        let (request, expected) = match (span.table, words, bit) {
            (Table::Coils, [word], _) => {
                let is_on = *word != 0;
                (
                    Request::WriteSingleCoil(address, is_on),
                    Response::WriteSingleCoil(address, is_on),
                )
            }
            (_, [word], Some(bit)) => {
                let (and, or) = (!(1 << bit), (word & 1) << bit);
                let request = Request::MaskWriteRegister(address, and, or);
                (request, Response::MaskWriteRegister(address, and, or))
            }
            (_, [word], None) => {
                let request = Request::WriteSingleRegister(address, *word);
                (request, Response::WriteSingleRegister(address, *word))
            }
            _ => {
                let request = Request::WriteMultipleRegisters(address, Cow::Borrowed(words));
                (
                    request,
                    Response::WriteMultipleRegisters(address, span.count),
                )
            }
        };
        match self.call(unit_id, request).await? {
            answer if answer == expected => Ok(()),
            _ => Err(self.broken("the answer is that of another request".to_owned())),
        }
    }

    /// Ends the connection after an answer that is none.
    fn broken(&mut self, text: String) -> Failure {
        self.end();
        Failure::Broken(text)
    }

    /// Ends the connection. An answer that is still on its way over a serial line is waited for.
    fn end(&mut self) {
        self.client = None;
        if !matches!(self.line, Line::Tcp(_)) {
            self.free_at = Instant::now() + self.timeout;
        }
    }

    async fn call(&mut self, unit_id: u8, request: Request<'_>) -> Result<Response, Failure> {
        let request = request.into_owned();
        let had_connection = self.client.is_some();
        match self.attempt(unit_id, request.clone()).await {
            // Devices end connections that are idle. Nothing was sent, so the request is not repeated.
            Err(Attempt::Unsent) if had_connection => {}
            outcome => return outcome.map_err(|error| self.failure(error)),
        }
        self.client = None;
        let again = self.attempt(unit_id, request).await;
        again.map_err(|error| self.failure(error))
    }

    fn failure(&mut self, attempt: Attempt) -> Failure {
        match attempt {
            Attempt::Failed(failure) => failure,
            Attempt::Unsent => self.broken("the device ended the connection".to_owned()),
        }
    }

    async fn attempt(
        &mut self,
        unit_id: u8,
        request: Request<'static>,
    ) -> Result<Response, Attempt> {
        sleep_until(self.free_at).await;
        self.connect().await.map_err(Attempt::Failed)?;
        let (silence, limit) = (silence(&self.line), self.timeout);
        let Some(client) = &mut self.client else {
            return Err(Attempt::Unsent);
        };
        client.set_slave(Slave(unit_id));
        let answer = timeout(limit, client.call(request)).await;
        self.free_at = Instant::now() + silence;
        let failure = match answer {
            Ok(Ok(Ok(response))) => return Ok(response),
            Ok(Ok(Err(code))) => return Err(Attempt::Failed(Failure::Exception(code.into()))),
            Ok(Err(Error::Transport(error))) if error.kind() == io::ErrorKind::NotConnected => {
                return Err(Attempt::Unsent);
            }
            Ok(Err(Error::Transport(error))) => Failure::Broken(transport(&error)),
            Ok(Err(Error::Protocol(_))) => {
                Failure::Broken("the answer is that of another request".to_owned())
            }
            Err(_) => Failure::Silent(limit),
        };
        self.end();
        Err(Attempt::Failed(failure))
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        if self.client.is_some() {
            return Ok(());
        }
        if let Some((until, text)) = &self.refused
            && Instant::now() < *until
        {
            return Err(Failure::Unreachable(text.clone()));
        }
        match timeout(self.timeout, client(&self.line)).await {
            Ok(Ok(client)) => {
                (self.client, self.refused) = (Some(client), None);
                Ok(())
            }
            failed => {
                let name = self.line.name();
                let text = match failed {
                    Ok(Err(error)) => format!("cannot connect to {name}: {error}"),
                    _ => format!(
                        "no connection to {name} within {} ms",
                        self.timeout.as_millis()
                    ),
                };
                self.refused = Some((Instant::now() + PAUSE, text.clone()));
                Err(Failure::Unreachable(text))
            }
        }
    }
}

/// Why one attempt has no answer.
enum Attempt {
    /// The connection had ended before the request was sent.
    Unsent,
    Failed(Failure),
}

fn transport(error: &io::Error) -> String {
    // The library reports the end of a connection as the last error of the system, which may be none.
    match error.raw_os_error() {
        Some(0) => "the device ended the connection".to_owned(),
        _ if error.kind() == io::ErrorKind::BrokenPipe => {
            "the device ended the connection".to_owned()
        }
        _ => error.to_string(),
    }
}

async fn client(line: &Line) -> io::Result<Client> {
    let stream = |place: &String| {
        let place = place.clone();
        async move {
            let stream = TcpStream::connect(place).await?;
            stream.set_nodelay(true)?;
            Ok::<_, io::Error>(Fresh(stream))
        }
    };
    Ok(match line {
        Line::Tcp(place) => tcp::attach(stream(place).await?),
        Line::RtuOverTcp(place) => rtu::attach(stream(place).await?),
        Line::Serial(serial) => rtu::attach(Fresh(open(serial)?)),
    })
}

fn open(serial: &SerialTable) -> io::Result<SerialPort> {
    use serial2_tokio::{CharSize, FlowControl, Parity as Bits, Settings, StopBits};
    let port = SerialPort::open(&serial.path, |mut settings: Settings| {
        settings.set_raw();
        settings.set_baud_rate(serial.baud)?;
        settings.set_char_size(CharSize::Bits8);
        settings.set_flow_control(FlowControl::None);
        settings.set_parity(match serial.parity {
            Parity::Even => Bits::Even,
            Parity::Odd => Bits::Odd,
            Parity::None => Bits::None,
        });
        settings.set_stop_bits(match (serial.stop_bits, serial.parity) {
            (Some(2), _) | (None, Parity::None) => StopBits::Two,
            _ => StopBits::One,
        });
        Ok(settings)
    })?;
    port.discard_buffers()?;
    Ok(port)
}

/// The silence between two frames: 3.5 characters (MODBUS over Serial Line 1.02, section 2.5.1.1).
fn silence(line: &Line) -> Duration {
    match line {
        Line::Serial(serial) if serial.baud <= 19_200 => {
            let nanoseconds = CHARACTER_BITS * 3_500_000_000 / u64::from(serial.baud);
            Duration::from_nanos(nanoseconds)
        }
        Line::Serial(_) => SILENCE_MIN,
        _ => Duration::ZERO,
    }
}

/// A transport that discards what has arrived before it writes: nobody asked for it.
#[derive(Debug)]
struct Fresh<T>(T);

impl<T: AsyncRead + Unpin> Fresh<T> {
    fn discard(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let gone = |_| io::Error::from(io::ErrorKind::NotConnected);
        let mut discarded = 0;
        while discarded < DISCARDED_MAX {
            let mut space = [0; 256];
            let mut buffer = ReadBuf::new(&mut space);
            match Pin::new(&mut self.0).poll_read(context, &mut buffer) {
                Poll::Pending => return Ok(()),
                Poll::Ready(read) => read.map_err(gone)?,
            }
            match buffer.filled().len() {
                0 => return Err(io::ErrorKind::NotConnected.into()),
                count => discarded += count,
            }
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the device sends without being asked",
        ))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Fresh<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Fresh<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.discard(context) {
            Ok(()) => Pin::new(&mut self.0).poll_write(context, bytes),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
