"""Test, made once, that our own Huffman decoding fits the libjpeg-turbo that is loaded.

Our decoder uses a private slot of libjpeg, which has been in the same place from 2.1.5 to 3.2. With
another layout, pixels would be wrong, so both decode a test image before any other image is
decoded. The test takes 0.5 ms.
"""

from __future__ import annotations

import base64
import os
import threading
from typing import Any

import numpy as np

# 56 x 40 pixels, 4:2:0, slopes and noise: all kinds of codes.
_JPEG = base64.b85decode(
    "|JeWF01!$>Nk#wx0RR9200961|JwjV01yid4h#wq4h;?x5fBp?C>j_R78o%jB^@X_Gd(;xGdMRuNL)@pL{~*OI8bd-"
    "S6^ahXlFi6ad~iLcwA*?WB=O#Lje&I5*QU2FB%#zV?sDWV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1u"
    "V`F1uV`F1uV`F1uV`Klo01*fPC;&JE0U`hb5di}c0sq7R9{>OW1pxs80RaI300000000010s{mE1_uZU3Jd?l0JRVR"
    "0s#X90t5pE1q1{D00Dgg0s{a95d{(<F+m0sQDFxnaTGFvk)a49Lb1UWQqk}vGh%Xr2?`b$7#SKRCMPH<Dl|1VH#j*u"
    "LqtVJM@UIZQ&d$}S6EqEV`OD!XJ~0^b98lfcX)YvgM@{Khlq)al9QB`mY0~BnxdnmrKYE-sj9NGw6(UkxVgH*!^FkL"
    "$H>Xb($mz{*4NnC+Tr5k<mKk)=;`Y5^7Hid_V@Vt`v1fL9{~UZ0RaI40RaI40RR91000010s{mE1_uZU3Jd?l0JRYS"
    "0s#U91Oo&I1q1{D0Rndb0RjUN1O*{61`<J02Vrp&A~Jyp6he`qvB3!=Gg9ysVsg<679=#`CGi&+85$-"
    "hC@Cs6Ha9pqIzvQ7Mn_0VN>fx-"
    "R##YAT4Q8oW@l(=YIAgTc6WGrdV+(5g@%WSiHeewl$Dm3n3<ZQqok##r>Lo_va__cwzs&sy28W6#m2|T$;#5x)YaD4"
    "*xB0R<K*S$=jiF`^7Hid_V@Vt`v2Mh3<CiG0ucid06zfY))B!ybIAU6EOBAmZv&|3rCUgcsm?hcN|j+|bBvb3B;%m0"
    "<5VFcnnH1oNj|(2RuU%Kz1Z>od8<*va0fsS4UbOsD21D7L4pN!LZ@@4EU32UdamBtI6R7#A#O$ro^$X20N1N45p9_u"
    "ZRhLHwOB}0a#tXF4&7_AH9MU#kx5|A;u9F-"
    "2d~nK(Mw=Pc);pUUrw}FTC9=L87pd07R+;$`iyWYZ?gl{7=OGtJXNs>$W>Aa#yR~zU(&338**7Ow<jYN@sX{u^YNKQ"
    "E%SkayP)n*zCT~WrAu`<Do<Q|$F6f%RsdPC)OP95N|Zsk0lR4#>Bs*7tN#G6U2v(?>4eIO6EOhoIqQMQ_NS~nfEzws"
    "{KR)1YVtz6HgbKj)6%7mFHDoc2ON=IkgAS|$f%GFfm;OUzB&5-"
    "v{r(_@&+U*>U&XL3T^CMt3nz!zGVf603Lt=&VQK2PL|twJp$n1^`eUT2+8Wt7CLN9mf+{i<O+~PH>oN?2P2W`+cZ&K"
    "ahp10t0Y*_I4hr0bC3SLOsUCYKIrG3lu=!@-lp8vi)K~q?QmIQEF#GufsNn&YAB+;*gi#Me2rSut2Zg?&;Qu"
)
_HEIGHT, _WIDTH = 40, 56
# In pixels: the whole image, and boxes for which columns and rows are skipped.
_BOXES = ((0, 0, _HEIGHT, _WIDTH), (0, 33, 9, 17), (21, 5, 9, 17), (31, 39, 9, 17))


_trying = threading.Lock()
_fits: dict[Any, bool] = {}


def own_huffman_fits(kernel: Any) -> bool:
    """True if both give the same pixels; if not, libjpeg decodes alone from now on."""
    with _trying:  # Concurrent tests would switch the decoder under each other.
        if kernel not in _fits:
            _fits[kernel] = _decoded(kernel, True) == _decoded(kernel, False)
            kernel.use_own_huffman(_fits[kernel])
    return _fits[kernel]


def _decoded(kernel: Any, by_own: bool) -> list[Any]:
    kernel.use_own_huffman(by_own)
    found = []
    for top, left, height, width in _BOXES:
        out = np.zeros((1, height, width, 3), np.uint8)
        vertical, horizontal = (top, height, height, 0), (left, width, width, 0)
        numbers = np.array([(0, _HEIGHT, _WIDTH, 1, *vertical, *horizontal, 0)], np.int32)
        outcome = kernel.decode([_JPEG], numbers, out, (1, height, width), False, None)
        found += [outcome, out.tobytes()]
    return found


def _reset_lock() -> None:
    global _trying
    _trying = threading.Lock()


os.register_at_fork(after_in_child=_reset_lock)
