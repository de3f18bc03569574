//! Builds Cyclone DDS from the sources in `cyclonedds-src`, and the C shim for it, and sets the configuration `cyclone`.
//!
//! Without CMake or a C compiler the crate is built without the library, with a warning, so that the rest of the
//! workspace needs neither. Opening a participant then fails with the remedy. With the variable `CHAPPE_REQUIRE_DDS` the build
//! fails instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

const SHIM: [&str; 2] = ["src/unsafe_cyclone/shim.c", "src/unsafe_cyclone/types.c"];

/// With this variable a build without the library fails, so that tests cannot pass without it.
const REQUIRED: &str = "CHAPPE_REQUIRE_DDS";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for file in SHIM {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=CMAKE");
    println!("cargo::rerun-if-env-changed={REQUIRED}");
    println!("cargo::rustc-check-cfg=cfg(cyclone)");
    println!("cargo::rustc-check-cfg=cfg(secure)");
    match build() {
        Ok(()) => {
            println!("cargo::rustc-cfg=cyclone");
            if is_secure() {
                println!("cargo::rustc-cfg=secure");
            }
        }
        Err(why) => println!(
            "cargo::{}=built without DDS: {why} (hint: install CMake and a C compiler{}; then touch \
             crates/dds/build.rs)",
            match env::var_os(REQUIRED) {
                Some(_) => "error",
                None => "warning",
            },
            match is_secure() {
                true => ", and OpenSSL's headers; Debian: apt-get install cmake gcc libssl-dev",
                false => "; Debian: apt-get install cmake gcc",
            }
        ),
    }
}

/// Whether the library has DDS Security, with its three plugins.
fn is_secure() -> bool {
    env::var_os("CARGO_FEATURE_SECURITY").is_some()
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
    let (source, build) = (out.join("source"), out.join("library"));
    sources(&out, &source, &build).map_err(|error| error.to_string())?;
    library(&source, &build)?;
    let mut shim = cc::Build::new();
    shim.files(SHIM)
        .std("gnu11")
        .define("NDEBUG", None)
        .cargo_metadata(true);
    for folder in [
        "src/core/ddsc/include",
        "src/core/ddsi/include",
        "src/core/ddsc/src",
        // The library's own headers: the shim reads its writers and participants.
        "src/core/ddsi/src",
        "src/core/cdr/include",
        "src/ddsrt/include",
        "src/security/api/include",
        "src/security/core/include",
    ] {
        shim.include(source.join(folder));
    }
    shim.include(build.join("src/core/include"))
        .include(build.join("src/ddsrt/include"));
    // The shim is linked first, for it calls the library.
    shim.try_compile("chappe_cyclone")
        .map_err(|error| format!("the C shim: {error}"))?;
    println!(
        "cargo::rustc-link-search=native={}",
        build.join("lib").display()
    );
    println!("cargo::rustc-link-lib=static=ddsc");
    Ok(())
}

/// A text of the library's sources, once in its file, and what replaces it.
#[derive(Debug)]
struct Change {
    file: &'static str,
    before: &'static str,
    after: &'static str,
}

/// The public key of `DH+MODP-2048-256`, with OpenSSL 3.
const KEY_FILE: &str = "src/security/builtin_plugins/authentication/src/auth_utils.c";

/// The memory of received packets.
const RECEIVED_FILE: &str = "src/core/ddsi/src/ddsi_radmin.c";

const CHANGES: [Change; 10] = [
    // Counts the buffers that hold received packets: those of samples that are not complete, or not the next ones. A stranger
    // decides about their number. `shim.c` reads it.
    Change {
        file: RECEIVED_FILE,
        before: "  const struct ddsrt_log_cfg *logcfg;
  bool trace;
#ifndef NDEBUG
  /* Thread that owns",
        after: "  const struct ddsrt_log_cfg *logcfg; ddsrt_atomic_uint32_t held;
  bool trace;
#ifndef NDEBUG
  /* Thread that owns",
    },
    Change {
        file: RECEIVED_FILE,
        before: "  rbp->logcfg = logcfg;
",
        after: "  rbp->logcfg = logcfg; ddsrt_atomic_st32 (&rbp->held, 0);
",
    },
    Change {
        file: RECEIVED_FILE,
        before: "  rb->rbufpool = rbp;
",
        after: "  rb->rbufpool = rbp; ddsrt_atomic_inc32 (&rbp->held);
",
    },
    Change {
        file: RECEIVED_FILE,
        before: "    ddsrt_free (rbuf);
  }
}
",
        after: "    ddsrt_atomic_dec32 (&rbp->held), ddsrt_free (rbuf);
  }
}

uint64_t chappe_held_bytes (const struct ddsi_rbufpool *rbp);
uint64_t chappe_held_bytes (const struct ddsi_rbufpool *rbp)
{
  return (uint64_t) ddsrt_atomic_ld32 (&rbp->held) * rbp->rbuf_size;
}
",
    },
    // The most bytes of a message about types. The library reads types within each other by recursion, so that a longer one
    // from anybody ends the program.
    Change {
        file: "src/core/ddsi/src/ddsi_serdata_cdr.c",
        before: "if (size > UINT32_MAX - offsetof (struct ddsi_serdata_cdr, hdr))",
        after: "if (size > 262144)",
    },
    // DDS Security 1.1 leaves the encoding of this key open. The library has it in DER, Fast DDS as a big-endian number, as
    // DDS Security 1.2 says. The library itself proposes another algorithm always, so that no participant of it is affected.
    Change {
        file: KEY_FILE,
        before: "(len = i2d_ASN1_INTEGER(asn1int, NULL)) < 0",
        after: "(len = BN_num_bytes(pubkey)) <= 0",
    },
    Change {
        file: KEY_FILE,
        before: "if (i2d_ASN1_INTEGER(asn1int, &tmp) < 0) {",
        after: "if ((tmp += BN_bn2bin(pubkey, tmp)) == NULL) {",
    },
    Change {
        file: KEY_FILE,
        before: "(asn1int = d2i_ASN1_INTEGER(NULL, &keystr, size)) == NULL",
        after: "(pubkey = BN_bin2bn(keystr, (int)size, NULL)) == NULL",
    },
    Change {
        file: KEY_FILE,
        before: "if ((pubkey = ASN1_INTEGER_to_BN(asn1int, NULL)) == NULL)",
        after: "if (pubkey == NULL)",
    },
    // The names of the algorithms in a reply: Fast DDS does not accept them with a terminating zero, the library with and
    // without.
    Change {
        file: "src/security/builtin_plugins/authentication/src/authentication.c",
        before: "get_kagree_algo(remoteIdent->kagreeAlgoKind));",
        after: "get_kagree_algo((remoteIdent->kagreeAlgoKind)));
  tokens[tokidx - 2].value._length--, tokens[tokidx - 1].value._length--;",
    },
];

/// Makes the changed sources. What an earlier build left is removed, if it was interrupted or made with other changes, or if
/// the folder was moved since: CMake remembers its path.
fn sources(out: &Path, source: &Path, build: &Path) -> io::Result<()> {
    let made = format!("{}\n{CHANGES:?}\n", out.display());
    let stamp = out.join("made");
    if !fs::read_to_string(&stamp).is_ok_and(|it| it == made) {
        for folder in [source, build] {
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    changed(&cyclonedds_src::source_dir(), source)?;
    fs::write(stamp, made)
}

/// Copies the library's sources, once, and makes the changes.
fn changed(from: &Path, to: &Path) -> io::Result<()> {
    for Change {
        file,
        before,
        after,
    } in CHANGES
    {
        let path = to.join(file);
        if !path.exists() {
            copy(from, to)?;
        }
        let text = fs::read_to_string(&path)?;
        match (text.matches(before).count(), text.contains(after)) {
            (0, true) => {}
            (1, false) => fs::write(&path, text.replace(before, after))?,
            _ => {
                let what = format!("{file} does not have once `{before}`, which is changed");
                return Err(io::Error::other(what));
            }
        }
    }
    Ok(())
}

/// Copies a folder with all that it has.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

/// Builds the static library in this folder.
fn library(source: &Path, build: &Path) -> Result<(), String> {
    let compiler = cc::Build::new()
        .try_get_compiler()
        .map_err(|error| error.to_string())?;
    let cmake = env::var_os("CMAKE").unwrap_or_else(|| "cmake".into());
    let target = |key| env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    let mut configure = Command::new(&cmake);
    configure.arg("-S").arg(source).arg("-B").arg(build);
    let compiler = compiler.path().display();
    // The project declares C++ and compiles none: it needs no C++ compiler.
    for name in ["C_COMPILER", "CXX_COMPILER"] {
        configure.arg(format!("-DCMAKE_{name}={compiler}"));
    }
    configure.args(["-DCMAKE_CXX_COMPILER_WORKS=1"]);
    if env::var("HOST") != env::var("TARGET") {
        let system = match target("OS").as_str() {
            "macos" => "Darwin".to_owned(),
            other => other[..1].to_uppercase() + &other[1..],
        };
        configure.arg(format!("-DCMAKE_SYSTEM_NAME={system}"));
        configure.arg(format!("-DCMAKE_SYSTEM_PROCESSOR={}", target("ARCH")));
    }
    // A release build has no assertions: one that fails would end the program.
    configure.args([
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_POSITION_INDEPENDENT_CODE=ON",
        "-DBUILD_SHARED_LIBS=OFF",
        "-DENABLE_LTO=OFF",
    ]);
    // The library ends no program: its calls of `abort` end only their own thread (`shim.c`).
    configure.arg("-DCMAKE_C_FLAGS=-Dabort=chappe_library_abort");
    // The plugins are linked into the library: it finds them by name in a table of its own, and loads no files.
    let secure = if is_secure() { "ON" } else { "OFF" };
    for name in ["ENABLE_SSL", "ENABLE_SECURITY"] {
        configure.arg(format!("-D{name}={secure}"));
    }
    // Named although they are the default: CMake remembers what an earlier build of this folder had.
    for on in ["ENABLE_TYPELIB", "ENABLE_TYPE_DISCOVERY"] {
        configure.arg(format!("-D{on}=ON"));
    }
    for off in [
        "BUILD_IDLC",
        "BUILD_DDSPERF",
        "BUILD_TESTING",
        "BUILD_EXAMPLES",
        "ENABLE_TCP_TLS",
        "ENABLE_LIFESPAN",
        "ENABLE_TOPIC_DISCOVERY",
        "ENABLE_QOS_PROVIDER",
    ] {
        configure.arg(format!("-D{off}=OFF"));
    }
    run(&mut configure)?;
    let jobs = env::var("NUM_JOBS").unwrap_or_else(|_| "1".to_owned());
    run(Command::new(&cmake).arg("--build").arg(build).args([
        "--target",
        "ddsc",
        "--parallel",
        &jobs,
    ]))
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    let output = command
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    // The last lines name the error; a warning of cargo is one line.
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = text.lines().map(str::trim).filter(|it| !it.is_empty());
    let mut lines: Vec<&str> = lines.rev().take(5).collect();
    lines.reverse();
    Err(format!("{program}: {}", lines.join("; ")))
}
