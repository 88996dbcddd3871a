"""Remote objects: URLs, clients for stores, concurrent fetching, and the cache.

urls.py            recognizes URLs and removes secrets from them
client.py          results and errors of requests; clients.py chooses the client for a URL
obstore_client.py  client for obstore; fsspec_client.py for fsspec
retry.py           retries after transient errors, up to a time limit
fetch.py           many ranges at once: merged, split, fetched by threads that all files share
cache.py           folder of fetched data, up to a limit; segments.py the parts of large objects;
                   all files are the user's alone (privatefiles.py)
"""

from adapters.remote.cache import Cache as Cache
from adapters.remote.client import Changed as Changed
from adapters.remote.client import Head as Head
from adapters.remote.clients import client_of as client_of
from adapters.remote.clients import reader_of as reader_of
from adapters.remote.urls import clean as clean
from adapters.remote.urls import is_url as is_url
