//! Records in a redb file. Nothing here knows what they say.
//!
//! redb guards its pages by checksums and is asked to check all of them, but it isn't written for hostile
//! files and may panic on one. No panic of it leaves this module.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redb::backends::FileBackend;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, TableError};

use crate::overlay::Overlay;
use crate::upgrade::{Raw, VERSION};

/// Of what is read and written, so much is kept in memory by redb, whose own default is 1 GiB.
const CACHE_BYTES: usize = 256 << 10;

const FORMAT: TableDefinition<&str, u64> = TableDefinition::new("swansong-outbox");
const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// What a file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// The version of its format.
    pub(crate) version: u64,
    /// Who wrote it last.
    pub(crate) writer: u64,
    /// Its records.
    pub(crate) raw: Raw,
}

/// A file can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The disk doesn't do what it's asked; the file may be sound.
    #[error("{0}")]
    Disk(io::Error),
    /// The file is no outbox, or isn't sound.
    #[error("{0}")]
    Unsound(String),
}

impl<E: Into<redb::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        match error.into() {
            redb::Error::Io(error) if !matches!(error.kind(), InvalidData | UnexpectedEof) => {
                Self::Disk(error)
            }
            redb::Error::DatabaseAlreadyOpen => {
                Self::Disk(io::Error::other("another process has the file open"))
            }
            redb::Error::PreviousIo => Self::Disk(io::Error::other("the disk failed before")),
            error => Self::Unsound(error.to_string()),
        }
    }
}

/// A file that is written.
#[derive(Debug)]
pub(crate) struct Store {
    database: Option<Database>,
}

/// Reads all that a file holds, without writing to it, and checks every page.
pub(crate) fn read(file: File) -> Result<Content, Failure> {
    if file.metadata()?.len() == 0 {
        return Err(Failure::Unsound("it is empty".to_owned()));
    }
    let overlay = Overlay::new(file)?;
    contained(|| {
        let database = builder().set_check_integrity_on_open(true).create_with_backend(overlay)?;
        let content = content(&database);
        database.close()?;
        content
    })
}

fn content(database: &Database) -> Result<Content, Failure> {
    let transaction = database.begin_read()?;
    let foreign = || Failure::Unsound("it is a file of redb, but no outbox".to_owned());
    let format = transaction.open_table(FORMAT).map_err(|error| match error {
        TableError::Storage(error) => error.into(),
        _ => foreign(),
    })?;
    let number = |name| format.get(name).map(|number| number.map(|number| number.value()));
    let version = number("version")?.ok_or_else(foreign)?;
    if version == 0 || version > VERSION {
        return Err(Failure::Unsound(format!(
            "its format is version {version} and this program knows {VERSION} at most; a newer program can read it"
        )));
    }
    let writer = number("writer")?.unwrap_or_default();
    let records = transaction.open_table(RECORDS)?;
    let mut raw = BTreeMap::new();
    for record in records.iter()? {
        let (key, value) = record?;
        raw.insert(key.value().to_vec(), value.value().to_vec());
    }
    Ok(Content { version, writer, raw })
}

impl Store {
    /// Opens a sound file or an empty one.
    pub(crate) fn open(file: impl StorageBackend) -> Result<Self, Failure> {
        contained(|| Ok(Self { database: Some(builder().create_with_backend(file)?) }))
    }

    /// Writes changes in one transaction: all of them are on disk when it returns, or none. With a stamp, if
    /// there is one.
    pub(crate) fn write(&mut self, changes: &[Change], stamp: Option<Stamp>) -> Result<(), Failure> {
        let database = self.database.as_ref();
        contained(|| {
            let database = database.ok_or_else(|| Failure::Unsound("it is closed".to_owned()))?;
            let transaction = database.begin_write()?;
            if let Some(Stamp { version, writer }) = stamp {
                let mut format = transaction.open_table(FORMAT)?;
                format.insert("version", version)?;
                format.insert("writer", writer)?;
            }
            {
                let mut records = transaction.open_table(RECORDS)?;
                for (key, value) in changes {
                    match value {
                        Some(value) => records.insert(key.as_slice(), value.as_slice())?,
                        None => records.remove(key.as_slice())?,
                    };
                }
            }
            Ok(transaction.commit()?)
        })
    }

    /// Gives space that isn't needed back to the disk.
    pub(crate) fn compact(&mut self) -> Result<(), Failure> {
        let database = self.database.as_mut();
        contained(|| {
            if let Some(database) = database {
                database.compact()?;
            }
            Ok(())
        })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let database = self.database.take();
        // What isn't closed well is mended when it's opened.
        let _ = contained(|| {
            drop(database);
            Ok(())
        });
    }
}

/// What a file says of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) version: u64,
    pub(crate) writer: u64,
}

/// A record and its new value; none if it goes.
pub(crate) type Change = (Vec<u8>, Option<Vec<u8>>);

/// The file itself.
pub(crate) fn backend(file: File) -> Result<impl StorageBackend, Failure> {
    Ok(FileBackend::new(file)?)
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Runs `work`; a panic in it is a failure. All that it touches is thrown away after one.
fn contained<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Failure::Unsound("redb panicked over it".to_owned())))
}

#[cfg(test)]
mod tests;
