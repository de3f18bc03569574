//! ZeroMQ sockets for programs that others wrote: what `check/peers zeromq` talks to.
//!
//!     zeromq_peer serve [--secret KEY [--allow KEY]...] [--max-message-bytes N]
//!         listens as ROUTER (echoes), PUB and REP on loopback, prints one line of JSON with the
//!         endpoints and the public key, and ends with its standard input. REP understands
//!         `publish TOPIC COUNT BYTES`, `subscriptions`, `dropped`, `drops`; it echoes all else.
//!     zeromq_peer dealer|req|sub ENDPOINT COUNT [PREFIX] [--secret KEY --server KEY]
//!         sends COUNT numbered messages and expects them back, or subscribes and takes COUNT.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chappe_transport::Drops;
use chappe_transport::zeromq::{
    Allowed, CurveSecret, Dealer, Limits, Message, Publisher, Reply, Request, Router, Security,
    Subscriber,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Arguments {
    words: Vec<String>,
    options: BTreeMap<String, Vec<String>>,
}

impl Arguments {
    fn read() -> Result<Self> {
        let mut arguments = Self::default();
        let mut all = std::env::args().skip(1);
        while let Some(word) = all.next() {
            match word.strip_prefix("--") {
                None => arguments.words.push(word),
                Some(name) => {
                    let value = all.next().ok_or("an option without its value")?;
                    arguments
                        .options
                        .entry(name.into())
                        .or_default()
                        .push(value);
                }
            }
        }
        Ok(arguments)
    }

    fn option(&self, name: &str) -> Option<&str> {
        let values = self.options.get(name)?;
        values.first().map(String::as_str)
    }

    fn word(&self, index: usize) -> Result<&str> {
        let word = self.words.get(index).map(String::as_str);
        word.ok_or_else(|| "see the head of this file for the arguments".into())
    }

    fn limits(&self) -> Result<Limits> {
        let mut limits = Limits::default();
        if let Some(bytes) = self.option("max-message-bytes") {
            limits.max_message_bytes = bytes.parse()?;
            limits.max_received_bytes = limits.max_message_bytes;
        }
        if let Some(bytes) = self.option("send-messages") {
            limits.send_messages = bytes.parse()?;
        }
        Ok(limits)
    }

    fn server(&self) -> Result<(Security, String)> {
        let Some(secret) = self.option("secret") else {
            return Ok((Security::Null, String::new()));
        };
        let secret = CurveSecret::from_text(secret)?;
        let key = secret.public().to_z85();
        let allowed = match self.options.get("allow") {
            None => Allowed::Any,
            Some(keys) => {
                let keys = keys.iter().map(|key| key.parse());
                Allowed::Keys(keys.collect::<std::result::Result<BTreeSet<_>, _>>()?)
            }
        };
        Ok((Security::CurveServer { secret, allowed }, key))
    }

    fn client(&self) -> Result<Security> {
        let (Some(secret), Some(server)) = (self.option("secret"), self.option("server")) else {
            return Ok(Security::Null);
        };
        Ok(Security::CurveClient {
            secret: CurveSecret::from_text(secret)?,
            server_key: server.parse()?,
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::read()?;
    match arguments.word(0)? {
        "serve" => serve(&arguments).await,
        "dealer" => dealer(&arguments).await,
        "req" => req(&arguments).await,
        "sub" => sub(&arguments).await,
        other => Err(format!("{other} is none of serve, dealer, req, sub").into()),
    }
}

async fn serve(arguments: &Arguments) -> Result<()> {
    const HERE: &str = "tcp://127.0.0.1:0";
    let (limits, (security, key)) = (arguments.limits()?, arguments.server()?);
    let drops = Drops::default();
    let mut router = Router::bind(HERE, security.clone(), limits.clone(), drops.clone()).await?;
    let publisher = Publisher::bind(HERE, security.clone(), limits.clone(), drops.clone()).await?;
    let mut reply = Reply::bind(HERE, security, limits, drops.clone()).await?;
    let publishes = publisher.local_endpoint().map(|at| at.to_string());
    println!(
        r#"{{"router":"{}","pub":"{}","rep":"{}","key":"{key}"}}"#,
        router.local_endpoint(),
        publishes.unwrap_or_default(),
        reply.local_endpoint(),
    );
    let end = tokio::task::spawn_blocking(|| {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).map(drop)
    });
    tokio::pin!(end);
    loop {
        tokio::select! {
            connection = router.accept() => {
                let (mut sender, mut receiver) = connection?.split();
                tokio::spawn(async move {
                    while let Ok(message) = receiver.recv().await {
                        if sender.send(message).await.is_err() {
                            return;
                        }
                    }
                });
            }
            asked = reply.recv() => {
                let asked = asked?;
                let answer = answer(&asked.question, &publisher, &drops).await;
                asked.answer(answer);
            }
            _ = &mut end => return Ok(()),
        }
    }
}

async fn answer(question: &Message, publisher: &Publisher, drops: &Drops) -> Message {
    let text = String::from_utf8_lossy(question.first()).into_owned();
    let words: Vec<&str> = text.split(' ').collect();
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    match (words[0], numbers[..].split_first()) {
        ("publish", Some((count, rest))) if words.len() == 4 => {
            let payload = Bytes::from(vec![b'x'; rest.first().copied().unwrap_or(0)]);
            let mut reached = 0;
            for sent in 0..*count {
                let number = Bytes::from(sent.to_string());
                let topic = words[1].to_owned();
                reached += publisher.publish(topic, [number, payload.clone()]);
                // Lets the connections write, so that only those that do not read are too slow.
                if sent % 64 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            Message::new(reached.to_string())
        }
        ("subscriptions", _) => Message::new(publisher.subscriptions().join(&b' ')),
        ("dropped", _) => Message::new(publisher.dropped().to_string()),
        ("drops", _) => {
            let totals = drops.totals();
            let lines = totals
                .iter()
                .map(|(_, reason, count)| format!("{reason}: {count}"));
            Message::new(lines.collect::<Vec<_>>().join("\n"))
        }
        _ => question.clone(),
    }
}

fn numbered(number: usize) -> Option<Message> {
    Message::from_frames([number.to_string().into_bytes(), vec![b'x'; 100]])
}

async fn dealer(arguments: &Arguments) -> Result<()> {
    let (endpoint, count) = (arguments.word(1)?, arguments.word(2)?.parse::<usize>()?);
    let connection = Dealer::connect(endpoint, arguments.client()?, arguments.limits()?).await?;
    let (mut sender, mut receiver) = connection.split();
    let started = Instant::now();
    let sending = async {
        for message in (0..count).filter_map(numbered) {
            sender.send(message).await?;
        }
        Ok::<_, Box<dyn Error>>(())
    };
    let receiving = async {
        for expected in (0..count).filter_map(numbered) {
            let message = receiver.recv().await?;
            if message != expected {
                return Err(format!("{message:?} instead of {expected:?}").into());
            }
        }
        Ok::<_, Box<dyn Error>>(())
    };
    tokio::time::timeout(PATIENCE, async { tokio::try_join!(sending, receiving) }).await??;
    let seconds = started.elapsed().as_secs_f64();
    println!(r#"{{"count":{count},"seconds":{seconds:.3}}}"#);
    Ok(())
}

async fn req(arguments: &Arguments) -> Result<()> {
    let (endpoint, count) = (arguments.word(1)?, arguments.word(2)?.parse::<usize>()?);
    let limits = arguments.limits()?;
    let mut request = Request::connect(endpoint, arguments.client()?, limits).await?;
    for expected in (0..count).filter_map(numbered) {
        let answer = request.ask(expected.clone(), PATIENCE).await?;
        if answer != expected {
            return Err(format!("{answer:?} instead of {expected:?}").into());
        }
    }
    println!(r#"{{"count":{count}}}"#);
    Ok(())
}

async fn sub(arguments: &Arguments) -> Result<()> {
    let (endpoint, count) = (arguments.word(1)?, arguments.word(2)?.parse::<usize>()?);
    let prefix = arguments.word(3)?.to_owned();
    let (security, limits, drops) = (arguments.client()?, arguments.limits()?, Drops::default());
    let subscribing = Subscriber::connect(endpoint, [prefix], security, limits, drops);
    let mut subscriber = subscribing.await?;
    let receiving = async {
        let mut bytes = 0;
        for _ in 0..count {
            bytes += subscriber.recv().await.bytes();
        }
        bytes
    };
    let bytes = tokio::time::timeout(PATIENCE, receiving).await?;
    println!(r#"{{"count":{count},"bytes":{bytes}}}"#);
    Ok(())
}
