"""Reads pictures of lierne draw: are they XML, is all of them inside of the frame, and does no text lie
on another one? pictures.py FILE... prints what is wrong, and the number of pictures without faults."""
import sys
import xml.etree.ElementTree as tree

SVG = "{http://www.w3.org/2000/svg}"


def box_of(text):
    """About: 0.55 of the size per column, which is less than what the program counts with."""
    size, x = int(text.get("font-size")), int(text.get("x"))
    width = 0.55 * size * len(text.text or "")
    left = x - {"middle": width / 2, "end": width}.get(text.get("text-anchor"), 0)
    top = int(text.get("y")) - 0.72 * size
    return left, top, left + width, top + 0.8 * size


def faults(path):
    root = tree.parse(path).getroot()
    width, height = int(root.get("width")), int(root.get("height"))
    if root.find(SVG + "rect").get("fill") != "#ffffff":
        yield "no ground"
    boxes = []
    for rect in root.iter(SVG + "rect"):
        x, y = int(rect.get("x", 0)), int(rect.get("y", 0))
        boxes.append((x, y, x + int(rect.get("width")), y + int(rect.get("height"))))
    texts = [(box_of(text), text) for text in root.iter(SVG + "text")]
    for box in boxes + [box for box, _ in texts]:
        if box[0] < 0 or box[1] < 0 or box[2] > width or box[3] > height:
            yield f"{box} is outside of {width} x {height}"
    texts.sort(key=lambda pair: pair[0][1])
    for i, (a, text) in enumerate(texts):
        if int(text.get("font-size")) < 11:
            yield f"'{text.text}' is too small"
        for b, other in texts[i + 1:]:
            if b[1] >= a[3]:
                break
            if a[0] < b[2] and b[0] < a[2]:
                yield f"'{text.text}' lies on '{other.text}'"


good = 0
for name in sys.argv[1:]:
    try:
        wrong = list(faults(name))
    except (tree.ParseError, AttributeError, ValueError) as error:
        wrong = [str(error)]
    for fault in wrong[:5]:
        print(f"{name}: {fault}")
    good += not wrong
print(good)
