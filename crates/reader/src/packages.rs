//! Unpacks Debian packages into one layer.
//!
//! The child gets each package with its length (8 bytes, little endian) before it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;

use archive::deb::{DebError, Package, PackageLayer};
use archive::{LayerView, UnpackLimits};
use confinement::Role;
use serde::{Deserialize, Serialize};
use spec::parse_permit::ParsePermit;
use spec::report::with_causes;
use sys::worker::WorkerLimits;

use crate::filling::{Feed, fill};
use crate::layers::ZSTD_BYTES;
use crate::message::{
    Cause, HEADER_BYTES_MAX, Problem, is_plain, malformed, read_header, write_header,
};
use crate::unpacking::memory_bytes;

/// Texts about one package, in JSON.
const PACKAGE_BYTES_MAX: u64 = 2 << 10;

/// Packages, and where they go.
#[expect(missing_debug_implementations, reason = "closures")]
pub struct PackagesTask<'run> {
    /// Opens the next package; `None` after the last one.
    pub next: &'run mut dyn FnMut() -> io::Result<Option<File>>,
    pub packages_max: u64,
    /// Asked several times a second.
    pub is_cancelled: &'run dyn Fn() -> bool,
    /// The empty directory of the layer.
    pub into: BorrowedFd<'run>,
    /// The layers below.
    pub view: &'run LayerView,
    pub limits: &'run UnpackLimits,
}

/// Why there is no layer.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageProblem {
    /// The package, counted from 0; `None`: all together.
    pub index: Option<usize>,
    pub problem: Problem,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Header {
    Unpacked {
        /// Name, version, architecture and scripts of each.
        packages: Vec<(String, String, String, Vec<String>)>,
        bytes: u64,
    },
    Problem(PackageProblem),
}

/// Unpacks packages as [`PackageLayer`] does. The child does not see the layers below, so every directory of a
/// package is in the layer. Also returns the bytes of all files, which are the word of the child.
///
/// # Errors
/// [`PackageProblem`]; the directory then contains some of the files.
pub fn unpack_packages(task: PackagesTask<'_>) -> Result<(Vec<Package>, u64), PackageProblem> {
    let PackagesTask {
        into, view, limits, ..
    } = task;
    let of_answer = PACKAGE_BYTES_MAX.saturating_mul(task.packages_max);
    let worker_limits = WorkerLimits {
        time: None,
        memory_bytes: memory_bytes(limits)
            .saturating_add(ZSTD_BYTES)
            .saturating_add(of_answer.saturating_mul(4)),
        file_bytes: limits.unpacked_bytes,
        answer_bytes: usize::try_from(HEADER_BYTES_MAX.saturating_add(of_answer))
            .unwrap_or(usize::MAX),
    };
    let run = |permit: &ParsePermit, source: File| {
        #[cfg(feature = "planted-bugs")]
        let source = confinement::planted::watch("packages", source);
        write(&read_packages(permit, source, into, view, limits))
    };
    let mut framed = Framed {
        next: task.next,
        length: Vec::new(),
        package: None,
        count: 0,
    };
    let feed = Feed {
        source: &mut framed,
        is_cancelled: task.is_cancelled,
    };
    let answer = fill(feed, Role::LayerUnpacker(into), worker_limits, &run);
    let sent = framed.count;
    let of_last = |problem| PackageProblem {
        index: sent.checked_sub(1),
        problem,
    };
    let answer = answer.map_err(of_last)?;
    let found = read(&answer.bytes, sent, limits)?;
    answer.archive_digest().map_err(of_last)?;
    Ok(found)
}

/// The packages as the child reads them.
struct Framed<'run> {
    next: &'run mut dyn FnMut() -> io::Result<Option<File>>,
    /// What is left to send of the length of the package.
    length: Vec<u8>,
    package: Option<io::Take<File>>,
    /// Packages that were opened.
    count: usize,
}

impl Read for Framed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.length.is_empty() {
                let count = (&self.length[..]).read(buffer)?;
                self.length.drain(..count);
                return Ok(count);
            }
            match &mut self.package {
                Some(package) if package.limit() > 0 => {
                    return match package.read(buffer)? {
                        0 if !buffer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
                        count => Ok(count),
                    };
                }
                _ => (),
            }
            self.count += 1;
            let Some(package) = (self.next)()? else {
                self.count -= 1;
                return Ok(0);
            };
            let bytes = package.metadata()?.len();
            self.length = bytes.to_le_bytes().to_vec();
            self.package = Some(package.take(bytes));
        }
    }
}

fn read_packages(
    permit: &ParsePermit,
    mut source: impl Read + Send,
    into: BorrowedFd<'_>,
    view: &LayerView,
    limits: &UnpackLimits,
) -> Result<(Vec<Package>, u64), PackageProblem> {
    let mut layer = PackageLayer::new(into, view.clone(), *limits);
    let mut packages = Vec::new();
    loop {
        let refused = |error| PackageProblem {
            index: Some(packages.len()),
            problem: of_deb(&error),
        };
        let mut length = Vec::new();
        let read = (&mut source).take(8).read_to_end(&mut length);
        read.map_err(|error| refused(DebError::Read(error)))?;
        let Some((length, _)) = length.split_first_chunk() else {
            break;
        };
        let package = (&mut source).take(u64::from_le_bytes(*length));
        let package = layer.add(permit, package, &|| false).map_err(refused)?;
        packages.push(package);
    }
    let layer = layer.finish().map_err(|error| PackageProblem {
        index: None,
        problem: Problem::of(&error),
    })?;
    Ok((packages, layer.bytes))
}

fn of_deb(error: &DebError) -> Problem {
    let cause = match error {
        DebError::Refused(_) => Cause::Bundle,
        DebError::Unpack { source, .. } => Problem::of(source).cause,
        DebError::Read(_) => Cause::Host,
    };
    Problem {
        code: error.code().to_owned(),
        message: with_causes(error),
        hint: None,
        cause,
    }
}

fn write(unpacked: &Result<(Vec<Package>, u64), PackageProblem>) -> Vec<u8> {
    let header = match unpacked {
        Ok((packages, bytes)) => {
            let texts = |package: &Package| {
                let Package {
                    name,
                    version,
                    architecture,
                    scripts,
                } = package.clone();
                (name, version, architecture, scripts)
            };
            Header::Unpacked {
                packages: packages.iter().map(texts).collect(),
                bytes: *bytes,
            }
        }
        Err(PackageProblem { index, problem }) => Header::Problem(PackageProblem {
            index: *index,
            problem: problem.clone(),
        }),
    };
    write_header(&header)
}

/// Parses an answer about `sent` packages.
fn read(
    bytes: &[u8],
    sent: usize,
    limits: &UnpackLimits,
) -> Result<(Vec<Package>, u64), PackageProblem> {
    let malformed = || PackageProblem {
        index: None,
        problem: malformed(),
    };
    let (header, rest) = read_header(bytes).map_err(|_malformed| malformed())?;
    if !rest.is_empty() {
        return Err(malformed());
    }
    let (packages, bytes) = match header {
        Header::Unpacked { packages, bytes } => (packages, bytes),
        Header::Problem(found)
            if found.problem.is_plain() && found.index.is_none_or(|index| index < sent) =>
        {
            return Err(found);
        }
        Header::Problem(_) => return Err(malformed()),
    };
    let packages: Vec<Package> = packages
        .into_iter()
        .map(|(name, version, architecture, scripts)| Package {
            name,
            version,
            architecture,
            scripts,
        })
        .collect();
    let is_good = |package: &Package| {
        let texts = [&package.name, &package.version, &package.architecture];
        let mut texts = texts.into_iter().chain(&package.scripts);
        texts.all(|text| is_plain(text))
    };
    if packages.len() != sent || bytes > limits.unpacked_bytes || !packages.iter().all(is_good) {
        return Err(malformed());
    }
    Ok((packages, bytes))
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;
    use proptest::prelude::*;

    fn package() -> Package {
        Package {
            name: "tool".to_owned(),
            version: "1.0".to_owned(),
            architecture: "all".to_owned(),
            scripts: vec!["postinst".to_owned()],
        }
    }

    fn problem(index: Option<usize>, message: &str) -> PackageProblem {
        PackageProblem {
            index,
            problem: Problem {
                code: "not_deb".to_owned(),
                message: message.to_owned(),
                hint: None,
                cause: Cause::Bundle,
            },
        }
    }

    #[test]
    fn what_the_reader_writes_is_read_back_and_nothing_else_is() {
        let limits = UnpackLimits {
            unpacked_bytes: 100,
            ..UnpackLimits::default()
        };
        let found = || (vec![package(), package()], 100);
        assert_eq!(read(&write(&Ok(found())), 2, &limits), Ok(found()));
        for index in [None, Some(1)] {
            let told = problem(index, "told");
            let found = read(&write(&Err(problem(index, "told"))), 2, &limits);
            assert_eq!(found, Err(told));
        }
        let named = |name: &str| Package {
            name: name.to_owned(),
            ..package()
        };
        for bad in [
            Vec::new(),
            vec![0xff; 16],
            write(&Ok((vec![package()], 1))),
            write(&Ok((vec![package(); 3], 1))),
            write(&Ok((vec![package(); 2], 101))),
            write(&Ok((vec![package(), named("\u{1b}[2J")], 1))),
            write(&Err(problem(Some(2), "told"))),
            write(&Err(problem(None, "\u{1b}[2J"))),
            [&write(&Ok(found()))[..], b"x"].concat(),
        ] {
            let found = read(&bad, 2, &limits).expect_err("malformed");
            assert_eq!(found.index, None);
            assert_eq!(found.problem.code, "archive_unreadable", "{bad:?}");
        }
    }

    fn files(packages: &[&[u8]]) -> impl FnMut() -> io::Result<Option<File>> {
        let mut left = packages.iter();
        move || {
            let Some(bytes) = left.next() else {
                return Ok(None);
            };
            let mut file = tempfile::tempfile()?;
            file.write_all(bytes)?;
            file.rewind()?;
            Ok(Some(file))
        }
    }

    fn unpack(packages: &[&[u8]]) -> Result<(Vec<Package>, u64), PackageProblem> {
        let mut next = files(packages);
        let directory = tempfile::tempdir().expect("a directory");
        let into = File::open(directory.path()).expect("opened");
        unpack_packages(PackagesTask {
            next: &mut next,
            packages_max: packages.len() as u64,
            is_cancelled: &|| false,
            into: into.as_fd(),
            view: &LayerView::default(),
            limits: &UnpackLimits::default(),
        })
    }

    #[test]
    fn the_package_that_is_refused_is_named() {
        let told = unpack(&[b"PK\x03\x04", b"second"]).expect_err("no package");
        assert_eq!((told.index, &told.problem.code[..]), (Some(0), "not_deb"));
        assert_eq!(unpack(&[]).expect("nothing"), (Vec::new(), 0));
    }

    #[test]
    fn packages_are_read_as_they_were_sent() {
        let long = vec![7; 300_000];
        let sent: [&[u8]; 3] = [b"", b"one", &long];
        let mut next = files(&sent);
        let mut framed = Framed {
            next: &mut next,
            length: Vec::new(),
            package: None,
            count: 0,
        };
        let mut read = Vec::new();
        framed.read_to_end(&mut read).expect("read");
        let mut expected = Vec::new();
        sent.iter()
            .for_each(|bytes| crate::message::put_part(bytes, &mut expected));
        assert!(read == expected);
        assert_eq!(framed.count, 3);
    }

    proptest! {
        #[test]
        fn no_answer_panics(cut in any::<prop::sample::Index>(), byte: u8) {
            let mut bytes = write(&Ok((vec![package()], 7)));
            let index = cut.index(bytes.len());
            bytes[index] = byte;
            let _read = read(&bytes, 1, &UnpackLimits::default());
            bytes.truncate(index);
            let _read = read(&bytes, 1, &UnpackLimits::default());
        }
    }
}
