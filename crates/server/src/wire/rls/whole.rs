//! A stream whose writes are of one piece.
//!
//! The library of HTTP/2 checks whether a stream takes several pieces at once. If it does, answers
//! of 256 bytes and more are not copied behind one another but written one by one, which costs a
//! system call each: more than twice of what the rest of such an answer costs. For a stream that
//! does not, answers of up to 1 KiB are collected, and written together.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Takes one piece at a time, on a stream that could take several.
#[derive(Debug)]
pub(super) struct Whole<S>(pub(super) S);

impl<S: AsyncRead + Unpin> AsyncRead for Whole<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Whole<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        false
    }
}
