import os; os.environ["KERAS_BACKEND"]="jax"
import numpy as np, tempfile, io
from pathlib import Path
from PIL import Image
from adapters import *
d=Path(tempfile.mkdtemp(dir="/root/scratch43")); P=[]
for k in range(8):
    a=np.mgrid[:40,:60][1].astype(np.uint8)*4; Image.fromarray(a).save(d/f"{k}.png"); P.append(str(d/f"{k}.png"))
dec=ImageDecoder(32,crop="random_resized",flip=True,channels=1,interpolation="nearest")
im=open_images(P,decode=dec); mk=open_images(P,decode=dec)
class Own:
    def __len__(s): return 8
    def __getitem__(s,i): return im[i][0],mk[i][0]
for kw in ({"workers":0},{"workers":2,"use_multiprocessing":True}):
    with SafeSequence(Own(),8,**kw) as s: b=s[0]; print(kw,"image and mask alike:",[bool((x==y).all()) for x,y in zip(*b)])
