"""ResNet-18 for small images.

K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016.
"""

from torch import nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes


def resnet18(shape: Shape, classes: int) -> nn.Module:
    """Return torchvision's ResNet-18 with a 3x3 stem of stride 1 and no max pooling, as is usual for CIFAR.

    The last feature map is averaged to (512,), so the number of parameters does not depend on the image size. The
    smallest image has 9 x 9 pixels. Parameters with 10 classes: 11,172,810 for 1 channel; 11,173,962 for 3 channels.
    BatchNorm has 9,600 running means and variances.
    """
    from torchvision.models import resnet

    channels, *_ = shapes.image("resnet18", shape, least=9)  # the last map is 2 x 2: BatchNorm needs two values
    model: nn.Module = resnet.resnet18(weights=None, num_classes=classes)
    stem = nn.Conv2d(channels, 64, kernel_size=3, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")  # as in torchvision's other convolutions
    model.conv1 = stem
    model.maxpool = nn.Identity()
    return model
