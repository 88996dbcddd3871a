"""Objects behind URLs: what they are called, who fetches their bytes, and what is kept of them.

urls.py      which names are URLs, and what of them people may see
client.py    what is asked of whoever talks to a store, and which of them there are
obstores.py  by obstore; filesystems.py by fsspec; localfiles.py for slow disks
retrying.py  another try after what passes, up to a limit in time
fetching.py  many ranges at once: merged, cut, by threads that all files share
cache.py     a folder of what was fetched, up to a limit.py; segments.py one of its files
"""

from adapters.remote.cache import Cache as Cache
from adapters.remote.client import Changed as Changed
from adapters.remote.client import Client as Client
from adapters.remote.client import Head as Head
from adapters.remote.client import client_of as client_of
from adapters.remote.urls import clean as clean
from adapters.remote.urls import is_url as is_url
