"""Fetching a data set that is not prepared yet, or refusing at once where that cannot succeed."""

import importlib.util
import os
import socket
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import Any

from ctt.config.dataset import KNOWN_DATASETS
from ctt.config.error import InputError

_FALLBACK_URL = "https://storage.googleapis.com"
_RESOLVE_SECONDS = 10.0


def download(builder: Any, *, name: str) -> None:
    """Download a data set and prepare it in the builder's own folder, as array_record.

    TFDS retries an unreachable host for minutes, so the hosts are resolved first.

    Args:
        builder: a TFDS builder whose data are not prepared.
        name: the data set's name.

    Raises:
        InputError: a host is out of reach, TensorFlow is missing though the preparation needs it,
            or the download or the preparation fails.
    """
    import tensorflow_datasets as tfds

    unreachable = find_unreachable_host(builder.url_infos or [_FALLBACK_URL])
    if unreachable:
        raise _refuse(builder, name, reason=f"and {unreachable} cannot be reached to download it")
    # TFDS writes the pixels of these sets through TensorFlow; it would fail after the download.
    if name in KNOWN_DATASETS and importlib.util.find_spec("tensorflow") is None:
        raise _refuse(
            builder, name, reason="and TFDS needs TensorFlow to prepare (not to read) it, which is not installed"
        )
    try:
        builder.download_and_prepare(
            file_format="array_record",
            download_config=tfds.download.DownloadConfig(try_download_gcs=False),
        )
    except ImportError as error:
        missing = error.name or "a module"
        raise _refuse(builder, name, reason=f"and preparing it here needs {missing}, which is not installed") from error
    except Exception as error:  # Builders raise whatever their own code and their server make of it.
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise _refuse(builder, name, reason=f"and the download failed ({reason})") from error


def find_unreachable_host(urls: Iterable[str]) -> str | None:
    """Return the first host whose name does not resolve, or None if all do.

    Args:
        urls: addresses; where a proxy serves them, it is the proxy's name that is resolved.

    Returns:
        The host's name, or None.
    """
    proxies = urllib.request.getproxies()
    hosts = []
    for url in urls:
        parts = urllib.parse.urlsplit(url)
        if not parts.hostname:
            continue
        proxy = None if urllib.request.proxy_bypass(parts.hostname) else proxies.get(parts.scheme)
        target = urllib.parse.urlsplit(proxy if "://" in proxy else f"//{proxy}") if proxy else parts
        hosts.append(target.hostname or parts.hostname)
    return next((host for host in dict.fromkeys(hosts) if not _resolves(host)), None)


def _resolves(host: str) -> bool:
    """Return whether the name resolves within a few seconds (a lookup without network may hang)."""
    found = threading.Event()

    def look_up() -> None:
        try:
            socket.getaddrinfo(host, 443)
        except OSError:
            return
        found.set()

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(_RESOLVE_SECONDS)
    return found.is_set()


def _refuse(builder: Any, name: str, *, reason: str) -> InputError:
    """Return the error for a set that is neither prepared nor to be had, with both ways out."""
    folder = os.fspath(builder.data_path)
    root = os.fspath(builder.data_dir_root)
    return InputError(
        f"`data.name` must be a data set that is prepared or can be downloaded, got {name!r}: it is not "
        f"prepared in {folder}, {reason}. Run again where there is a connection and TensorFlow, or prepare it "
        f"on such a machine with `pip install tensorflow-datasets tensorflow && tfds build {name} "
        f"--file_format=array_record --data_dir={root}`, copy that folder here and pass --data.dir."
    )
